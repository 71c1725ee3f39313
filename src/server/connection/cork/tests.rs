//! The bytes that reach the socket, and the number of writes.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use futures_util::FutureExt;
use proptest::prelude::*;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinHandle;

use super::*;

mod records;

/// A socket that counts its writes and accepts at most `space` bytes.
#[derive(Clone, Debug, Default)]
struct Socket(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    written: Vec<u8>,
    writes: usize,
    flushes: usize,
    space: Option<usize>,
    failing: bool,
    incoming: VecDeque<u8>,
    waker: Option<Waker>,
}

impl Socket {
    fn with_space(space: usize) -> Self {
        let socket = Self::default();
        socket.0.lock().space = Some(space);
        socket
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let waker = {
            let mut state = self.0.lock();
            change(&mut state);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        if state.incoming.is_empty() {
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let bytes: Vec<u8> = state.incoming.drain(..).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.0.lock();
        if state.failing {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let taken = state.space.map_or(bytes.len(), |space| space.min(bytes.len()));
        if taken == 0 {
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        state.space = state.space.map(|space| space - taken);
        state.writes += 1;
        state.written.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let slices: Vec<&[u8]> = slices.iter().map(|slice| &**slice).collect();
        self.poll_write(context, &slices.concat())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().flushes += 1;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A cork over `socket` that buffers if `shared`.
fn cork(socket: &Socket, shared: bool) -> Cork<Socket> {
    let cork = Cork::new(socket.clone(), ConnActivity::new(), 1 << 20);
    cork.set_shared(shared);
    cork
}

/// Polls `connection` and ends each poll with the cork, as the task of a connection does.
async fn drive<I, F>(cork: &Cork<I>, connection: F) -> io::Result<F::Output>
where
    I: AsyncRead + AsyncWrite + Unpin,
    F: Future,
{
    let mut connection = pin!(connection);
    poll_fn(|context| {
        let polled = connection.as_mut().poll(context);
        cork.end_poll(polled, context)
    })
    .await
}

/// Writes and flushes each piece, as h2 does with DATA frames.
async fn write<I>(mut cork: Cork<I>, pieces: &[Vec<u8>]) -> io::Result<()>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    for piece in pieces {
        cork.write_all(piece).await?;
        cork.flush().await?;
    }
    Ok(())
}

/// Writes `pieces` in the task of a connection, until it has to wait. Returns the task, and the
/// number of bytes that the cork has taken.
async fn begin_writes<I>(
    cork: Cork<I>,
    pieces: Vec<Vec<u8>>,
) -> (JoinHandle<io::Result<()>>, Arc<AtomicUsize>)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let taken = Arc::new(AtomicUsize::new(0));
    let (count, writer) = (Arc::clone(&taken), cork.clone());
    let driver = tokio::spawn(async move {
        let written = async move {
            for piece in &pieces {
                write(writer.clone(), std::slice::from_ref(piece)).await.unwrap();
                count.fetch_add(piece.len(), Ordering::Relaxed);
            }
            std::future::pending::<()>().await
        };
        drive(&cork, written).await
    });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    (driver, taken)
}

#[tokio::test]
async fn the_writes_of_one_poll_are_one_write_at_its_end() {
    let socket = Socket::default();
    let cork = cork(&socket, true);
    let pieces = vec![vec![b'x'; 1000]; 50];
    let poll = async {
        write(cork.clone(), &pieces).await.unwrap();
        assert_eq!(socket.0.lock().writes, 0);
        std::future::pending::<()>().await
    };
    let mut driven = pin!(drive(&cork, poll));
    assert!(futures_util::poll!(driven.as_mut()).is_pending());
    let state = socket.0.lock();
    assert_eq!((state.written.len(), state.writes, state.flushes), (50_000, 1, 1));
    drop(state);
    assert_eq!(cork.0.lock().buffer.capacity(), 0, "an idle connection holds nothing");
}

#[tokio::test]
async fn single_requests_and_whole_frames_bypass_the_buffer() {
    for (shared, length) in [(false, 1000), (true, BYPASS_BYTES_MIN)] {
        let socket = Socket::default();
        let cork = cork(&socket, shared);
        write(cork, &vec![vec![b'x'; length]; 5]).now_or_never().unwrap().unwrap();
        let state = socket.0.lock();
        assert_eq!((state.writes, state.flushes, state.written.len()), (5, 5, length * 5));
    }
}

#[tokio::test]
async fn a_response_that_waits_for_its_turn_is_not_written() {
    let (socket, activity) = (Socket::default(), ConnActivity::new());
    let mut cork = Cork::new(socket.clone(), activity.clone(), 1 << 20);
    let request = activity.begin_request();
    request.set_writes_wait(true);
    let piece = vec![b'x'; BYPASS_BYTES_MIN];
    assert!(cork.write(&piece).now_or_never().is_none());
    assert_eq!(socket.0.lock().writes, 0);
    request.set_writes_wait(false);
    assert_eq!(cork.write(&piece).now_or_never().unwrap().unwrap(), piece.len());
}

#[tokio::test]
async fn a_full_socket_causes_back_pressure_and_loses_nothing() {
    let socket = Socket::with_space(0);
    let pieces: Vec<Vec<u8>> = (0..200_u8).map(|number| vec![number; 1000]).collect();
    let expected = pieces.concat();
    let (driver, taken) = begin_writes(cork(&socket, true), pieces).await;
    let most = BUFFER_BYTES_MAX / 1000 * 1000;
    assert_eq!(taken.load(Ordering::Relaxed), most, "no more is accepted");
    while socket.0.lock().written.len() < expected.len() {
        socket.change(|state| state.space = Some(777));
        tokio::task::yield_now().await;
    }
    assert_eq!(taken.load(Ordering::Relaxed), expected.len());
    assert!(socket.0.lock().written == expected);
    driver.abort();
}

#[tokio::test(start_paused = true)]
async fn an_error_at_the_end_of_a_poll_ends_the_connection() {
    let socket = Socket::with_space(10);
    let cork = cork(&socket, true);
    let writer = cork.clone();
    let driven = drive(&cork, async move {
        write(writer, &[vec![b'x'; 1000]]).await.unwrap();
        std::future::pending::<()>().await
    });
    let mut driven = pin!(driven);
    let early = tokio::time::timeout(Duration::from_secs(9), driven.as_mut()).await;
    assert!(early.is_err(), "a full socket is no error");
    socket.change(|state| state.failing = true);
    assert_eq!(driven.await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn buffered_bytes_are_written_before_the_end() {
    let socket = Socket::default();
    let cork = cork(&socket, true);
    let mut writer = cork.clone();
    let driven = drive(&cork, async move {
        writer.write_all(b"goodbye").await?;
        writer.shutdown().await
    });
    driven.await.unwrap().unwrap();
    assert_eq!(socket.0.lock().written, b"goodbye");

    let cork = self::cork(&socket, true);
    let mut writer = cork.clone();
    drive(&cork, async move { writer.write_all(b", really").await }).await.unwrap().unwrap();
    assert_eq!(socket.0.lock().written, b"goodbye, really");
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    SetSpace(usize),
    SetShared(bool),
    EndPoll,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..40_000_usize).prop_map(Step::Write),
        3 => (0..50_000_usize).prop_map(Step::SetSpace),
        1 => any::<bool>().prop_map(Step::SetShared),
        3 => Just(Step::EndPoll),
    ]
}

proptest! {
    /// All bytes are written once and in order, whatever happens in between.
    #[test]
    fn bytes_keep_their_order(steps in prop::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let socket = Socket::with_space(0);
            let mut cork = cork(&socket, true);
            let (mut expected, mut number) = (Vec::new(), 0_u32);
            for step in steps {
                match step {
                    Step::Write(length) => {
                        let bytes: Vec<u8> =
                            (0..length).map(|at| (at as u32 + number).to_le_bytes()[0]).collect();
                        number += 7;
                        if let Some(taken) = cork.write(&bytes).now_or_never() {
                            expected.extend_from_slice(&bytes[..taken.unwrap()]);
                        }
                        cork.flush().now_or_never();
                    }
                    Step::SetSpace(space) => socket.change(|state| state.space = Some(space)),
                    Step::SetShared(shared) => cork.set_shared(shared),
                    Step::EndPoll => {
                        let mut context = Context::from_waker(Waker::noop());
                        let _ready = cork.0.lock().drain(&mut context).is_ready();
                    }
                }
                prop_assert!(cork.0.lock().buffer.capacity() <= BUFFER_BYTES_MAX);
            }
            socket.change(|state| state.space = None);
            drive(&cork, async {}).await.unwrap();
            prop_assert!(socket.0.lock().written == expected);
            Ok(())
        })?;
    }
}
