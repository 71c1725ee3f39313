//! The limit of open files: every client and every connection to the upstream needs one.
//!
//! The soft limit is usually 1,024, for programs that use `select`. Weir does not use `select`, and
//! raises the soft limit to the hard limit, as Go programs do.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard limit, and logs the effective limit. If the system refuses,
/// the old limit stays.
pub(crate) fn raise_limit() {
    let before = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: before.maximum, maximum: before.maximum };
    if before.current != before.maximum
        && let Err(error) = setrlimit(Resource::Nofile, wanted)
    {
        tracing::warn!(%error, limit = before.current, "the limit of open files cannot be raised");
        return;
    }
    match getrlimit(Resource::Nofile).current {
        Some(limit) => tracing::info!(limit, "open files"),
        None => tracing::info!("open files are not limited"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_of_open_files_is_raised_to_the_hard_limit() {
        raise_limit();
        let after = getrlimit(Resource::Nofile);
        assert_eq!(after.current, after.maximum);
    }
}
