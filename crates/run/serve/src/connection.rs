//! Watches the progress of a connection's socket, so that a client that is too slow is disconnected.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::options::Timeouts;
use crate::pace::{FOREVER, Pace};

/// Phase and write progress of a connection, shared by its socket, its requests and its timeout watch.
#[derive(Clone, Debug)]
pub(crate) struct Activity(Arc<Mutex<ConnectionState>>);

#[derive(Debug)]
struct ConnectionState {
    phase: Phase,
    /// Progress of the response being written, counted from the first time the socket was full.
    writing: Option<Pace>,
    is_full: bool,
    /// When the socket took all that there was while more is to come, as in a stream; that time is the server's.
    drained: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Between two requests, since this instant.
    Idle(Instant),
    /// Headers have been arriving since this instant.
    Head(Instant),
    /// A request is being answered. Its body has a [`Pace`] of its own.
    Answering,
}

impl Activity {
    pub(crate) fn new() -> Self {
        let phase = Phase::Idle(Instant::now());
        Self(Arc::new(Mutex::new(ConnectionState { phase, writing: None, is_full: false, drained: None })))
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the headers of a request are complete.
    pub(crate) fn start_answering(&self) {
        let mut state = self.state();
        state.phase = Phase::Answering;
        state.writing = None;
        state.drained = None;
    }

    /// Records that a response is ready to be written.
    pub(crate) fn finish_answering(&self) {
        self.state().phase = Phase::Idle(Instant::now());
    }

    fn record_received(&self) {
        let mut state = self.state();
        if let Phase::Idle(_) = state.phase {
            state.phase = Phase::Head(Instant::now());
        }
    }

    fn record_full_socket(&self) {
        let mut state = self.state();
        state.is_full = true;
        let drained = state.drained.take();
        let pace = state.writing.get_or_insert_with(Pace::start);
        if let Some(drained) = drained {
            pace.pause(drained.elapsed());
        }
    }

    fn record_written(&self, bytes: usize) {
        let mut state = self.state();
        state.is_full = false;
        state.drained.get_or_insert_with(Instant::now);
        if let Some(pace) = &mut state.writing {
            pace.advance(bytes);
        }
        if let Phase::Idle(_) = state.phase {
            state.phase = Phase::Idle(Instant::now());
        }
    }

    /// Returns the time since the connection became idle; `None` while it is busy.
    pub(crate) fn idle_for(&self) -> Option<Duration> {
        let state = self.state();
        match state.phase {
            Phase::Idle(since) if !state.is_full => Some(since.elapsed()),
            _ => None,
        }
    }

    /// Returns true if no request is being answered and no response is being written.
    pub(crate) fn is_between_requests(&self) -> bool {
        let state = self.state();
        !state.is_full && !matches!(state.phase, Phase::Answering)
    }

    /// Returns the instant at which the client is too slow; `None` while the client waits for the server.
    pub(crate) fn deadline(&self, timeouts: &Timeouts) -> Option<Instant> {
        let state = self.state();
        let (since, allowed) = match (state.phase, state.writing) {
            (_, Some(pace)) if state.is_full => return Some(pace.deadline(timeouts)),
            (Phase::Idle(since), _) => (since, timeouts.idle),
            (Phase::Head(since), _) => (since, timeouts.head),
            (Phase::Answering, _) => return None,
        };
        Some(since.checked_add(allowed.min(FOREVER)).unwrap_or(since))
    }
}

/// Socket that records its progress in an [`Activity`].
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TokioIo<TcpStream>,
    activity: Activity,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, activity: Activity) -> Self {
        Self { stream: TokioIo::new(stream), activity }
    }

    fn record_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Pending => self.activity.record_full_socket(),
            Poll::Ready(Ok(bytes)) => self.activity.record_written(*bytes),
            Poll::Ready(Err(_)) => {}
        }
        written
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.activity.record_received();
        Poll::Ready(Ok(()))
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.record_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.record_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_when_all_is_written_and_nothing_arrives() {
        let activity = Activity::new();
        let state = || (activity.idle_for().is_some(), activity.is_between_requests());
        assert_eq!(state(), (true, true));
        activity.record_full_socket();
        assert_eq!(state(), (false, false));
        activity.record_written(1);
        assert_eq!(state(), (true, true));
        activity.record_received();
        assert_eq!(state(), (false, true));
        activity.start_answering();
        assert_eq!(state(), (false, false));
        activity.record_full_socket();
        assert_eq!(state(), (false, false));
        activity.finish_answering();
        assert_eq!(state(), (false, false), "the response is not written");
        activity.record_written(1);
        assert_eq!(state(), (true, true));
    }

    #[test]
    fn each_phase_has_a_deadline_of_its_own() {
        let hours = |count: u64| Duration::from_secs(count.saturating_mul(3600));
        let timeouts = Timeouts {
            idle: hours(1),
            head: hours(3),
            transfer: hours(5),
            bytes_per_second: 1,
            ..Timeouts::default()
        };
        let activity = Activity::new();
        // The hour in which the deadline is, counted from now.
        let hour = || {
            let left = activity.deadline(&timeouts)?.saturating_duration_since(Instant::now());
            Some(left.as_secs().div_ceil(3600))
        };
        assert_eq!(hour(), Some(1));
        activity.record_received();
        assert_eq!(hour(), Some(3));
        activity.start_answering();
        assert_eq!(hour(), None);
        activity.record_full_socket();
        assert_eq!(hour(), Some(5));
        // The socket takes bytes again, and the request is still being answered.
        activity.record_written(1);
        assert_eq!(hour(), None);
        activity.finish_answering();
        assert_eq!(hour(), Some(1));
        activity.record_full_socket();
        assert_eq!(hour(), Some(5));
    }

    #[test]
    fn bytes_are_written_one_part_at_a_time_too() {
        use std::future::poll_fn;
        use std::io::Read as _;

        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a reactor");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let activity = Activity::new();
        let written = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.expect("it listens");
            let mut socket = Socket::new(stream, activity.clone());
            poll_fn(|cx| Pin::new(&mut socket).poll_write(cx, b"ab")).await
        });
        assert_eq!(written.expect("the system takes two bytes"), 2);
        let mut received = Vec::new();
        let (mut stream, _) = listener.accept().expect("it connected");
        stream.read_to_end(&mut received).expect("the other side is closed");
        assert_eq!(received, b"ab");
    }
}
