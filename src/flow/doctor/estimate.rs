//! The estimate of what requests cost the API server, and numbers as people read them.

/// Estimates the CPU time of the API server for a byte of a response as it was sent.
pub fn seconds_per_sent_byte(is_protobuf: bool, is_gzip: bool) -> f64 {
    let per_byte = if is_protobuf { SECONDS_PER_PROTOBUF_BYTE } else { SECONDS_PER_BYTE };
    if is_gzip { GZIP_RATIO * per_byte } else { per_byte }
}

pub(super) fn interval(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 1.5 => format!("{:.1} times a second", 1.0 / seconds.max(1e-9)),
        seconds if seconds < 120.0 => format!("every {seconds:.0} s"),
        seconds => format!("every {:.0} min", seconds / 60.0),
    }
}

pub(super) fn bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes < 1e6 => format!("{:.0} KB", bytes / 1e3),
        bytes if bytes < 1e9 => format!("{:.1} MB", bytes / 1e6),
        bytes => format!("{:.1} GB", bytes / 1e9),
    }
}

/// CPU seconds of kube-apiserver 1.36 for a byte of a list in JSON, as `benches/compare.rs`
/// measured them.
pub const SECONDS_PER_BYTE: f64 = 12e-9;
/// Its CPU seconds for a byte of a list in protobuf.
const SECONDS_PER_PROTOBUF_BYTE: f64 = 7e-9;
/// The bytes of objects for each byte of a response that is compressed: typical of lists.
pub const GZIP_RATIO: f64 = 8.0;
/// Its CPU seconds for a GET or another small request.
pub const SECONDS_PER_REQUEST: f64 = 0.25e-3;
/// Its CPU seconds for an event that it sends to a watch.
pub const SECONDS_PER_EVENT: f64 = 29e-6;
