"""All kinds of integrations, by name. A new one is a module here and a line below."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gateway.domain.webhooks.kinds.azure_devops import AZURE_DEVOPS
from gateway.domain.webhooks.kinds.bitbucket import BITBUCKET
from gateway.domain.webhooks.kinds.generic import GENERIC
from gateway.domain.webhooks.kinds.gitea import GITEA
from gateway.domain.webhooks.kinds.github import GITHUB
from gateway.domain.webhooks.kinds.gitlab import GITLAB
from gateway.domain.webhooks.kinds.harbor import HARBOR
from gateway.domain.webhooks.kinds.jira import JIRA
from gateway.domain.webhooks.kinds.kind import Kind
from gateway.domain.webhooks.kinds.linear import LINEAR
from gateway.domain.webhooks.kinds.own import GATEWAY, OPERATOR
from gateway.domain.webhooks.kinds.pagerduty import PAGERDUTY
from gateway.domain.webhooks.kinds.zendesk import ZENDESK

KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            *(GITHUB, GITLAB, BITBUCKET, GITEA, AZURE_DEVOPS),
            *(JIRA, LINEAR, ZENDESK, PAGERDUTY, HARBOR, GENERIC),
            *(GATEWAY, OPERATOR),
        )
    }
)
