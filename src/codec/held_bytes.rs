//! Counts the bytes that are in memory only because clients have not read them yet: those copied or
//! rendered for one response, and those that a cache has dropped while a client still reads them.
//!
//! The count follows the bytes, not the response: a buffer counts until its last reference is
//! dropped, wherever the HTTP library keeps that. So a client that reads fast holds next to
//! nothing, and the shared bytes of objects do not count for each of their readers.
//!
//! This module only counts. Its callers decide what to do when an account is full
//! (`docs/decisions/response-bodies.md`).
//!
//! Invariant: an account's count is the sum of its claims and of those of its parts.
//!
//! No locks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::task::AtomicWaker;

/// An account of held bytes. Cheap to clone: clones are the same account.
#[derive(Clone, Debug)]
pub struct HeldBytes(Arc<Account>);

#[derive(Debug)]
struct Account {
    bytes: AtomicUsize,
    bytes_max: usize,
    /// The account whose count includes this one's.
    whole: Option<HeldBytes>,
    /// The task that waits until the account has fewer bytes. `None` if none may wait.
    waiting: Option<AtomicWaker>,
}

impl HeldBytes {
    /// Creates an account that is full at `bytes_max`.
    pub fn new(bytes_max: usize) -> Self {
        Self::with(bytes_max, None, None)
    }

    /// Creates an account that is full at `bytes_max`, or when this one is. This one counts its
    /// bytes too.
    pub fn part(&self, bytes_max: usize) -> Self {
        Self::with(bytes_max, Some(self.clone()), None)
    }

    /// Creates an account for the pieces of one response, which can wait until they are released
    /// ([`poll_below`](Self::poll_below)). This one counts their bytes too.
    pub fn response(&self) -> Self {
        Self::with(usize::MAX, Some(self.clone()), Some(AtomicWaker::new()))
    }

    fn with(bytes_max: usize, whole: Option<Self>, waiting: Option<AtomicWaker>) -> Self {
        Self(Arc::new(Account { bytes: AtomicUsize::new(0), bytes_max, whole, waiting }))
    }

    /// Returns the counted bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes at which the account is full.
    pub fn bytes_max(&self) -> usize {
        self.0.bytes_max
    }

    /// Whether no more bytes should be made for a new response.
    pub fn is_full(&self) -> bool {
        self.bytes() >= self.0.bytes_max || self.0.whole.as_ref().is_some_and(Self::is_full)
    }

    /// Returns the account for what a response keeps until its end, and for whose release its next
    /// piece must not wait: the one from which the account of the response was created.
    pub fn state_account(&self) -> &Self {
        match (&self.0.waiting, &self.0.whole) {
            (Some(_), Some(whole)) => whole,
            _ => self,
        }
    }

    /// Waits until the account of a response counts fewer than `bytes`. Only one task may wait.
    pub fn poll_below(&self, bytes: usize, context: &Context<'_>) -> Poll<()> {
        let Some(waiting) = self.0.waiting.as_ref().filter(|_| self.bytes() >= bytes) else {
            return Poll::Ready(());
        };
        waiting.register(context.waker());
        // A release before the registration wakes nothing.
        if self.bytes() < bytes { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Counts a buffer until the last reference to its bytes is dropped.
    pub fn hold(&self, buffer: Vec<u8>) -> Bytes {
        if buffer.is_empty() {
            return Bytes::new();
        }
        // A buffer that grew may have twice the length, and would keep it for as long.
        let is_wasteful = buffer.capacity() - buffer.len() > SPARE_BYTES_MAX;
        let buffer = if is_wasteful { buffer.as_slice().to_vec() } else { buffer };
        let claim = self.claim(buffer.capacity());
        Bytes::from_owner(HeldBuffer { buffer, _claim: claim })
    }

    /// Counts `bytes` until the claim is dropped, even if the account is full.
    pub fn claim(&self, bytes: usize) -> Claim {
        let mut account = Some(self);
        while let Some(Self(counters)) = account {
            counters.bytes.fetch_add(bytes, Ordering::Relaxed);
            account = counters.whole.as_ref();
        }
        Claim { account: self.clone(), bytes }
    }

    /// Returns a reference that does not keep the account.
    pub fn downgrade(&self) -> WeakHeldBytes {
        WeakHeldBytes(Arc::downgrade(&self.0))
    }
}

/// A reference to an account that is gone once nobody uses it and nothing is counted.
#[derive(Clone, Debug)]
pub struct WeakHeldBytes(Weak<Account>);

impl WeakHeldBytes {
    /// Returns the account, unless it is gone.
    pub fn upgrade(&self) -> Option<HeldBytes> {
        self.0.upgrade().map(HeldBytes)
    }

    /// Whether the account is gone.
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// Counted bytes. Dropping it ends their count.
#[derive(Debug)]
pub struct Claim {
    account: HeldBytes,
    bytes: usize,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut account = Some(&self.account);
        while let Some(HeldBytes(counters)) = account {
            counters.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
            account = counters.whole.as_ref();
        }
        if let Some(waiting) = &self.account.0.waiting {
            waiting.wake();
        }
    }
}

struct HeldBuffer {
    buffer: Vec<u8>,
    _claim: Claim,
}

impl AsRef<[u8]> for HeldBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

/// Bytes of a cache that clients share. While the cache has them, its own limit counts them. They
/// are counted as held once the cache has dropped them and a client still reads them.
#[derive(Clone, Debug)]
pub struct CachedBytes {
    bytes: Bytes,
    dropped: Arc<OnceLock<Claim>>,
}

impl CachedBytes {
    /// Takes the bytes of a cache.
    pub fn new(bytes: impl AsRef<[u8]> + Send + 'static) -> Self {
        let dropped = Arc::default();
        let buffer = CachedBuffer { buffer: bytes, _dropped: Arc::clone(&dropped) };
        Self { bytes: Bytes::from_owner(buffer), dropped }
    }

    /// Returns the bytes, shared.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Counts the bytes until their last reference is dropped. Call this when the cache drops them.
    pub fn count_as_held(&self, held: &HeldBytes) {
        self.dropped.get_or_init(|| held.claim(self.bytes.len()));
    }
}

struct CachedBuffer<T> {
    buffer: T,
    /// The claim lives as long as the buffer.
    _dropped: Arc<OnceLock<Claim>>,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for CachedBuffer<T> {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

/// Unused capacity that is not worth a copy.
const SPARE_BYTES_MAX: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_counts_until_its_last_part_is_dropped() {
        let total = HeldBytes::new(100);
        let client = total.part(50);
        let mut bytes = client.hold(Vec::from([7; 50]));
        let tail = bytes.split_off(40);
        assert_eq!((total.bytes(), client.bytes()), (50, 50));
        assert!(client.is_full() && !total.is_full());
        drop(bytes);
        assert_eq!((total.bytes(), tail.len()), (50, 10));
        drop(tail);
        assert_eq!((total.bytes(), client.bytes()), (0, 0));
        assert!(client.hold(Vec::new()).is_empty());
    }

    #[test]
    fn a_buffer_keeps_little_unused_capacity() {
        let total = HeldBytes::new(usize::MAX);
        let mut buffer = Vec::with_capacity(4 * SPARE_BYTES_MAX);
        buffer.extend_from_slice(b"short");
        let bytes = total.hold(buffer);
        assert_eq!((&bytes[..], total.bytes()), (&b"short"[..], 5));
    }

    #[test]
    fn a_part_is_full_when_the_whole_is() {
        let total = HeldBytes::new(100);
        let (one, other) = (total.part(50), total.part(50));
        let claims = [one.claim(40), total.claim(60)];
        assert!(one.is_full() && other.is_full());
        drop(claims);
        assert!(!one.is_full() && !other.is_full());
    }

    #[test]
    fn the_bytes_of_a_cache_count_once_it_has_dropped_them() {
        let total = HeldBytes::new(100);
        let cached = CachedBytes::new(vec![7; 30]);
        let read = [cached.bytes().clone(), cached.bytes().slice(..10)];
        assert_eq!(total.bytes(), 0);
        cached.count_as_held(&total);
        cached.count_as_held(&total);
        drop(cached);
        assert_eq!((total.bytes(), read[0].len()), (30, 30));
        drop(read);
        assert_eq!(total.bytes(), 0);
    }

    #[test]
    fn a_response_waits_until_its_bytes_are_released() {
        let total = HeldBytes::new(100);
        let response = total.response();
        let _state = response.state_account().claim(50);
        let poll = || response.poll_below(10, &Context::from_waker(std::task::Waker::noop()));
        assert!(poll().is_ready());
        let first = response.hold(vec![7; 9]);
        assert!(poll().is_ready());
        let second = response.hold(vec![7; 9]);
        assert!(poll().is_pending());
        assert_eq!(total.bytes(), 50 + 18);
        drop(first);
        assert!(poll().is_ready());
        drop(second);
    }

    #[test]
    fn an_account_is_gone_when_nothing_is_counted() {
        let total = HeldBytes::new(100);
        let client = total.part(50);
        let weak = client.downgrade();
        let bytes = client.hold(vec![7; 10]);
        drop(client);
        assert!(weak.upgrade().is_some_and(|client| client.bytes() == 10));
        drop(bytes);
        assert!(weak.is_gone() && weak.upgrade().is_none());
    }
}
