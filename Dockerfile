# The gateway as an image.
#
#   docker build --tag gateway --build-arg VERSION=0.1.0 --build-arg REVISION="$(git rev-parse HEAD)" \
#                --build-arg CREATED="$(date --utc +%FT%TZ)" .
#   docker run --read-only --tmpfs /tmp --cap-drop ALL --publish 8080:8080 gateway
#
# Nothing outside /data and /tmp is ever written, so the root can be read-only. /data holds a
# private Redis where no GATEWAY_STORE is given. Policies are read from /etc/gateway/policies, where
# a folder of one's own is mounted; a change there is loaded without a restart.
#
# There is no tini: the gateway is process 1 and does what an init would. It takes SIGTERM, SIGINT
# and SIGHUP itself, passes them on to its workers, waits for every process that it starts, and
# none of those leaves children behind. Give it the time that its timeouts.drain says:
# docker stop --time 40.

# A release and its digest; the digest decides, whatever the tag has become since. Both are renewed
# together, for a newer Python or for Debian's security updates, with what this shows:
#
#   docker buildx imagetools inspect python:3.12-slim-bookworm
#
# --build-arg BASE=... builds on another base, such as a mirror's copy.
ARG BASE=python:3.12.14-slim-bookworm@sha256:392307d22300de8b5986851a12d9176dfc0fc073e65bf6523ebd7dcbeb23564e

FROM ${BASE} AS build
WORKDIR /src
# What is pinned comes first: while it stays the same, so does this layer. Wheels only, of the hashes
# written down: were one missing, the build would fail instead of asking for a compiler. Modules are
# compiled here, since nobody can write them down later.
COPY requirements/run.txt requirements/
RUN python -m venv /opt/build \
 && python -m venv --without-pip /opt/gateway \
 && /opt/build/bin/pip --python /opt/gateway/bin/python install --no-cache-dir --compile \
    --no-deps --only-binary :all: --require-hashes --requirement requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY gateway gateway
COPY policies policies
# setuptools makes a package of it, and is of no use afterwards.
RUN /opt/build/bin/pip --python /opt/gateway/bin/python install --no-cache-dir --compile \
    --no-deps --no-build-isolation . \
 && /opt/build/bin/pip --python /opt/gateway/bin/python uninstall --yes setuptools

FROM ${BASE}
ARG VERSION=0.0.0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="rate-limiting-gateway" \
      org.opencontainers.image.description="A rate-limiting reverse proxy: API keys, scopes, sliding-window limits in Redis." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
# The base brings pip, and a copy of it for new environments; what runs here installs nothing.
RUN groupadd --gid 10001 gateway \
 && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin gateway \
 && install --directory --owner=10001 --group=10001 --mode=0700 /data \
 && python -m pip uninstall --yes pip \
 && rm -rf /usr/local/lib/python3*/ensurepip
COPY --from=build /opt/gateway /opt/gateway
COPY policies /etc/gateway/policies
# As variables, so that commands run beside the gateway mean the same:
# docker exec NAME gateway keys create --name acme --plan pro
ENV PATH=/opt/gateway/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    GATEWAY_POLICIES=/etc/gateway/policies \
    GATEWAY_DATA=/data \
    GATEWAY_LISTEN=0.0.0.0:8080 \
    GATEWAY_ADMIN=0.0.0.0:9901
USER 10001:10001
WORKDIR /data
VOLUME ["/data"]
EXPOSE 8080 9901
STOPSIGNAL SIGTERM
# Whether it lives, not whether it can decide (/readyz): those that restart what is unhealthy would
# only make an outage of Redis worse. The policies say whether the admin listener speaks TLS, so it is
# asked both ways; its certificate is for the name that people use.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-I", "-c", "import http.client as h, os, ssl\nat = {'host': '127.0.0.1', 'port': int(os.environ['GATEWAY_ADMIN'].rpartition(':')[2]), 'timeout': 1}\nfor link in (h.HTTPConnection(**at), h.HTTPSConnection(**at, context=ssl._create_unverified_context())):\n    try:\n        link.request('GET', '/healthz')\n        raise SystemExit(link.getresponse().status != 200)\n    except (OSError, h.HTTPException):\n        pass\nraise SystemExit(1)"]
ENTRYPOINT ["gateway"]
CMD ["serve"]
