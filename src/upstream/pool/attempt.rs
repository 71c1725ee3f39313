//! One attempt to send a request, and whether it may be given up for another one.

use crate::upstream::send_options::SendOptions;

/// One attempt to send a request.
#[derive(Clone, Copy)]
pub(in crate::upstream) struct Attempt<'a> {
    pub(in crate::upstream) options: &'a SendOptions,
    /// Whether it may be given up.
    pub(in crate::upstream) leaving: Option<Leaving<'a>>,
}

/// Lets a read leave a connection whose peer does not answer.
#[derive(Clone, Copy)]
pub(in crate::upstream) struct Leaving<'a> {
    /// Takes the next attempt from a budget. If it returns false, the read waits on.
    pub(in crate::upstream) may_leave: &'a (dyn Fn() -> bool + Send + Sync),
    /// Whether this attempt is the first one.
    pub(in crate::upstream) is_first: bool,
}

impl Attempt<'_> {
    /// Waits until the attempt may be given up after `silence`.
    pub(super) async fn until_may_leave(&self, silence: impl Future<Output = ()>) {
        let Some(leaving) = self.leaving else { return std::future::pending().await };
        silence.await;
        if !(leaving.may_leave)() {
            std::future::pending().await
        }
    }
}
