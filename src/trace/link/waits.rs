//! Calls of a device's runtime or driver that wait: CUDA, HIP and the like differ in their prefix only.

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// The host waits for a stream.
    Stream,
    /// The host waits for an event.
    Event,
    /// The host waits for everything on the device.
    Device,
    /// Memory is given back, for which the runtime waits until the device no longer uses it.
    Free,
}

/// What the host waits for in a call of this name.
pub(super) fn of(name: &str) -> Option<Wait> {
    if name.contains("StreamSynchronize") {
        Some(Wait::Stream)
    } else if name.contains("EventSynchronize") {
        Some(Wait::Event)
    } else if name.contains("DeviceSynchronize") || name.contains("CtxSynchronize") {
        Some(Wait::Device)
    } else if matches!(name, "cudaFree" | "hipFree" | "cuMemFree" | "cuMemFree_v2") {
        Some(Wait::Free)
    } else {
        None
    }
}

/// Whether a call that launches nothing is kept as a node.
pub(super) fn matters(name: &str) -> bool {
    of(name).is_some()
}

/// Whether a call makes a stream wait for an event.
pub(super) fn stream_waits(name: &str) -> bool {
    name.contains("StreamWaitEvent")
}
