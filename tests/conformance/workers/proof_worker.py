"""Reads statements with in-toto's types, and signs and verifies files with model-signing."""

import json
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from line_server import serve
from model_signing import signing, verifying


def read(path):
    """The statement in protobuf's JSON, after in-toto has checked it, and its provenance has no member that SLSA does not have."""
    proto = json_format.Parse(Path(path).read_text(), statement_pb2.Statement())
    statement = Statement.copy_from_pb(proto)
    statement.validate()
    provenance = json_format.MessageToDict(proto.predicate)
    json_format.ParseDict(provenance, provenance_pb2.Provenance())
    return json.loads(json_format.MessageToJson(statement.pb))


def sign(folder, signature):
    """Signs a folder, or a file, with a new key, and verifies the signature."""
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = Path(signature + ".key"), Path(signature + ".pub")
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    private.write_bytes(key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain))
    public.write_bytes(key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo))
    signing.Config().use_elliptic_key_signer(private_key=private).sign(folder, signature)
    verify(folder, signature)


def verify(folder, signature):
    verifying.Config().use_elliptic_key_verifier(public_key=Path(signature + ".pub")).verify(folder, signature)


serve({f.__name__: f for f in (read, sign, verify)})
