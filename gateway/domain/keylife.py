"""The life cycle of a key: its status at a time, and the allowed changes.

    valid <-> suspended, and from either to revoked, which is final; an expired key stays expired

Each change takes a record and returns the record that replaces it, or a sentence that says why the
change is not possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gateway.domain.keys import KeyRecord
from gateway.domain.ports import KeyFilter


def has_expired(record: KeyRecord, now_us: int) -> bool:
    """Has the key expired? At the time of its expiry it is no longer valid."""
    return record.expires_us is not None and now_us >= record.expires_us


def status_at(record: KeyRecord, now_us: int) -> str:
    """Its status at a time; "expired" for a valid key that has expired."""
    return "expired" if record.status == "valid" and has_expired(record, now_us) else record.status


def is_wanted(record: KeyRecord, plan: str, wanted: KeyFilter) -> bool:
    """Does the key match the filter? plan: its own, or that of its account"""
    return (
        (wanted.status is None or status_at(record, wanted.now_us) == wanted.status)
        and (wanted.plans is None or plan in wanted.plans)
        and (wanted.other_plans is None or plan not in wanted.other_plans)
        and (wanted.account is None or record.account == wanted.account)
        and (wanted.environment is None or record.environment == wanted.environment)
        and (wanted.scope is None or wanted.scope in record.scopes)
        and (
            wanted.expires_before_us is None
            or (record.expires_us is not None and record.expires_us < wanted.expires_before_us)
        )
        and (
            wanted.text is None
            or any(
                wanted.text.lower() in words.lower()
                for words in (record.id, record.name, record.account)
            )
        )
    )


def suspend(record: KeyRecord) -> KeyRecord | str:
    """The record suspended: refused until it is resumed."""
    if record.status == "revoked":
        return "it was revoked, which is final"
    if record.status == "suspended":
        return "it is suspended already"
    return replace(record, status="suspended")


def resume(record: KeyRecord) -> KeyRecord | str:
    """The record valid again."""
    if record.status == "revoked":
        return "it was revoked, which is final"
    if record.status == "valid":
        return "it is not suspended"
    return replace(record, status="valid")


def revoke(record: KeyRecord) -> KeyRecord | str:
    """The record revoked: refused from now on, which is final."""
    if record.status == "revoked":
        return "it was revoked already"
    return replace(record, status="revoked")


def edit(record: KeyRecord, changes: Mapping[str, Any]) -> KeyRecord | str:
    """The record with changed fields. An expired key may get a later expiry."""
    if record.status == "revoked":
        return "it was revoked, which is final"
    changed = replace(record, **changes)
    # What is counted per key stays with it.
    if changed.account != record.account:
        moved_from = "" if changed.account == record.home else record.home
        changed = replace(changed, moved_from=moved_from)
    return changed


def rotate(
    record: KeyRecord, successor_id: str, digest: bytes, now_us: int, overlap_us: int
) -> tuple[KeyRecord, KeyRecord] | str:
    """The old key, valid for the overlap only, and its successor: (old, new).

    The successor inherits all fields. With the lineage, both share their counters; with the
    expiry, a rotation does not extend the key's life.
    """
    if record.status == "revoked":
        return "it was revoked, create a new key"
    if record.status == "suspended":
        return "it is suspended, resume it first"
    if has_expired(record, now_us):
        return "it has expired, create a new key"
    if record.successor is not None:
        return f"it was rotated already, its successor is {record.successor}"
    end_us = now_us + overlap_us
    if record.expires_us is not None:
        end_us = min(end_us, record.expires_us)
    old = replace(record, successor=successor_id, expires_us=end_us)
    new = replace(record, id=successor_id, digest=digest, created_us=now_us)
    return old, new
