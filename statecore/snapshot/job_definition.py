"""The definition of a job, kept beside its state so that a lost catalog can be rebuilt."""

from __future__ import annotations

import msgspec

from statecore.errors import ManifestError, MissingFileError
from statecore.redaction import without_secrets
from statecore.storage import FileStore

_PATH = "job.json"


class JobDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job as its driver last found it registered.

    Attributes:
        artifact, artifact_sha256, store, master_url, cluster, checkpoint: As registered.
        conf, settings: As registered, without entries whose name or value looks like a secret.
        withheld: The names of the omitted entries.

    """

    name: str
    artifact: str
    artifact_sha256: str | None = None
    store: str
    master_url: str
    cluster: str | None
    conf: dict[str, str]
    settings: dict[str, str]
    parallelism: int
    max_parallelism: int
    withheld: tuple[str, ...] = ()
    checkpoint: str | None = None


_DECODER = msgspec.json.Decoder(JobDefinition)


def write_definition(files: FileStore, definition: JobDefinition) -> None:
    """Write a definition, without its secrets; it replaces an older one."""
    conf, settings = without_secrets(definition.conf), without_secrets(definition.settings)
    withheld = {*(definition.conf.keys() - conf.keys()), *(definition.settings.keys() - settings.keys())}
    public = msgspec.structs.replace(definition, conf=conf, settings=settings, withheld=tuple(sorted(withheld)))
    files.write(_PATH, msgspec.json.format(msgspec.json.encode(public), indent=1))


def read_definition(files: FileStore) -> JobDefinition:
    """Return the definition of the job that owns the store.

    Raises:
        MissingFileError: No driver of this release has run on the store.
        ManifestError: The file is damaged.

    """
    try:
        return _DECODER.decode(files.read(_PATH))
    except MissingFileError:
        raise MissingFileError(
            f"found no {_PATH} in {files.url}; expected the definition of a job, which its driver writes there; "
            "give the root of a job's store, or register the job by hand"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ManifestError(
            f"found {files.url}/{_PATH}, which is not a job definition ({error}); expected one written by statecore; "
            "register the job by hand"
        ) from error
