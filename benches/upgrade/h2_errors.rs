//! The errors of HTTP/2 behind those of hyper.

/// Whether the server says that it did not begin the request.
pub(crate) fn is_unprocessed(error: &hyper::Error) -> bool {
    reset(error).is_some_and(|error| {
        error.is_remote()
            && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

/// Returns the error of HTTP/2 behind an error.
pub(crate) fn reset<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a h2::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(h2_error) = error.downcast_ref::<h2::Error>() {
            return Some(h2_error);
        }
        next = error.source();
    }
    None
}
