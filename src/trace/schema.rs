//! The descriptors of `proto/chakra.proto`, for text and JSON.

use prost_reflect::{DescriptorPool, MessageDescriptor};
use std::sync::LazyLock;

static POOL: LazyLock<Result<DescriptorPool, String>> = LazyLock::new(|| {
    let bytes: &[u8] = include_bytes!("../../proto/generated/descriptors.bin");
    DescriptorPool::decode(bytes).map_err(|e| format!("internal error: the compiled schema cannot be read: {e}"))
});

/// Descriptor of a message of Chakra's schema.
///
/// # Errors
/// When the schema compiled into the program has no such message: a mistake in the build.
pub fn descriptor(message: &str) -> Result<MessageDescriptor, String> {
    let pool = POOL.as_ref().map_err(Clone::clone)?;
    pool.get_message_by_name(&format!("flowspace.chakra.{message}"))
        .ok_or_else(|| format!("internal error: the compiled schema has no message {message}"))
}
