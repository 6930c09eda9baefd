"""The messages of `v2.proto` at run time; `v2_pb2.pyi` gives their types.

They live in a descriptor pool of their own, since tritonclient and others put messages of the same full names
into protobuf's default pool, and one pool refuses the second.
"""

import importlib.resources

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

_files = descriptor_pb2.FileDescriptorSet.FromString(importlib.resources.files(__package__).joinpath("v2.binpb").read_bytes())
_pool = descriptor_pool.DescriptorPool()
for _file in _files.file:
    _pool.Add(_file)
DESCRIPTOR = _pool.FindFileByName("v2.proto")

globals().update({name: message_factory.GetMessageClass(message) for name, message in DESCRIPTOR.message_types_by_name.items()})
globals().update({name: EnumTypeWrapper(enum) for name, enum in DESCRIPTOR.enum_types_by_name.items()})
