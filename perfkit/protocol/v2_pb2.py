"""The messages of `v2.proto` at run time; `v2_pb2.pyi` gives their types.

They live in a descriptor pool of their own, since tritonclient and others put messages of the same full names
into protobuf's default pool, and one pool refuses the second.
"""

import importlib.resources

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from perfkit.protocol import wire_format

_files = importlib.resources.files(__package__).joinpath("v2.binpb").read_bytes()
_pool = descriptor_pool.DescriptorPool()
for _file in wire_format.fields(_files):  # of a FileDescriptorSet, whose own classes take as much memory as all others
    _pool.AddSerializedFile(_files[_file.content : _file.end])
DESCRIPTOR = _pool.FindFileByName("v2.proto")

globals().update({name: message_factory.GetMessageClass(message) for name, message in DESCRIPTOR.message_types_by_name.items()})
globals().update({name: EnumTypeWrapper(enum) for name, enum in DESCRIPTOR.enum_types_by_name.items()})
