//! Request bodies, read under limits, and response bodies, sent in parts.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::timeout_at;

use crate::budget::{Charge, MemoryBudget};
use crate::encoding::reserve_charged;
use crate::options::{ServeLimits, Timeouts};
use crate::pace::Pace;

/// Body of a request, read while it arrives.
#[derive(Debug)]
pub(crate) struct Upload {
    incoming: Incoming,
    pace: Pace,
    received: usize,
    /// True once the body has ended or failed.
    is_over: bool,
}

/// Reason for which a request body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    TooLarge,
    NoMemory,
    TooSlow,
    /// The client went away, or sent something that is not a valid body.
    Broken,
}

impl Upload {
    pub(crate) fn new(incoming: Incoming) -> Self {
        let is_over = incoming.is_end_stream();
        Self { incoming, pace: Pace::start(), received: 0, is_over }
    }

    pub(crate) fn received(&self) -> usize {
        self.received
    }

    /// Reads the next bytes of the body; `None` at its end.
    async fn next(&mut self, timeouts: &Timeouts) -> Result<Option<Bytes>, BodyError> {
        while !self.is_over {
            let deadline = self.pace.deadline(timeouts).into();
            let Ok(frame) = timeout_at(deadline, self.incoming.frame()).await else {
                self.is_over = true;
                return Err(BodyError::TooSlow);
            };
            match frame {
                None => self.is_over = true,
                Some(Err(_)) => {
                    self.is_over = true;
                    return Err(BodyError::Broken);
                }
                // Trailers are ignored.
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.pace.advance(bytes.len());
                        self.received = self.received.saturating_add(bytes.len());
                        return Ok(Some(bytes));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Reads the whole body into one buffer, which counts in the returned charge.
    ///
    /// # Errors
    /// Returns an error if the body is longer than the limit or too slow, or if the budget has no room for it.
    pub(crate) async fn read(
        &mut self,
        limits: &ServeLimits,
        timeouts: &Timeouts,
        budget: &MemoryBudget,
    ) -> Result<(Vec<u8>, Charge), BodyError> {
        let (mut body, mut charge) = (Vec::new(), budget.charge());
        let declared = self.incoming.size_hint().exact().unwrap_or(0);
        if declared > limits.body as u64 {
            return Err(BodyError::TooLarge);
        }
        // The client's Content-Length is trusted only up to `RESERVED_MAX`: beyond it, memory grows with the bytes that arrive.
        let believed = usize::try_from(declared).unwrap_or(0).min(RESERVED_MAX);
        if !reserve_charged(&mut body, believed, limits.body, &mut charge) {
            return Err(BodyError::NoMemory);
        }
        while let Some(bytes) = self.next(timeouts).await? {
            if body.len().saturating_add(bytes.len()) > limits.body {
                return Err(BodyError::TooLarge);
            }
            if !reserve_charged(&mut body, bytes.len(), limits.body, &mut charge) {
                return Err(BodyError::NoMemory);
            }
            body.extend_from_slice(bytes.chunk());
        }
        Ok((body, charge))
    }

    /// Reads and discards the rest of the body, so that the client reads the response and the connection can be reused;
    /// gives up after twice the limit. Returns true if the end was reached.
    pub(crate) async fn skip(&mut self, limits: &ServeLimits, timeouts: &Timeouts) -> bool {
        let last = self.received.saturating_add(limits.body.saturating_mul(2).max(SKIPPED_MIN));
        while self.received <= last {
            match self.next(timeouts).await {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
        false
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }
}

/// Smallest number of bytes that [`Upload::skip`] reads before it gives up, even under a smaller limit.
const SKIPPED_MIN: usize = 1 << 20;

/// Largest number of bytes reserved on the word of a Content-Length, before they arrive.
const RESERVED_MAX: usize = 256 << 10;

/// Source of the parts of a body that are not known when its response starts; `None` at its end.
pub(crate) type LiveParts = Box<dyn FnMut(&mut Context<'_>) -> Poll<Option<Bytes>> + Send>;

/// Body of a response: a queue of parts, then those of a live source.
#[derive(Default)]
pub(crate) struct Payload {
    parts: VecDeque<Bytes>,
    live: Option<LiveParts>,
    sent: u64,
    /// Called with the number of bytes sent, when the body has ended or its client is gone.
    at_end: Option<Box<dyn FnOnce(u64) + Send>>,
}

impl Payload {
    pub(crate) fn new(parts: impl IntoIterator<Item = Bytes>) -> Self {
        // An empty chunk would end a chunked body.
        let mut payload = Self::default();
        payload.parts.extend(parts.into_iter().filter(|part| !part.is_empty()));
        payload
    }

    /// Creates a body whose parts follow while it is sent. None of them is empty.
    pub(crate) fn live(parts: LiveParts) -> Self {
        let mut payload = Self::default();
        payload.live = Some(parts);
        payload
    }

    pub(crate) fn is_live(&self) -> bool {
        self.live.is_some()
    }

    /// Calls `at_end` when the body has ended or its client is gone.
    pub(crate) fn call_at_end(&mut self, at_end: impl FnOnce(u64) + Send + 'static) {
        self.at_end = Some(Box::new(at_end));
    }

    /// Returns the number of bytes that are known.
    pub(crate) fn len(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).fold(0, u64::saturating_add)
    }

    /// Applies `wrap` to each part that is known; the bytes must stay the same.
    pub(crate) fn map(mut self, wrap: impl Fn(Bytes) -> Bytes) -> Self {
        self.parts = self.parts.drain(..).map(wrap).collect();
        self
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        if let Some(at_end) = self.at_end.take() {
            at_end(self.sent);
        }
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = match self.parts.pop_front() {
            Some(part) => Some(part),
            None => match &mut self.live {
                Some(live) => ready!(live(cx)),
                None => None,
            },
        };
        if let Some(part) = &part {
            self.sent = self.sent.saturating_add(part.len() as u64);
        } else {
            self.live = None;
        }
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty() && self.live.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.live.is_some() { SizeHint::default() } else { SizeHint::with_exact(self.len()) }
    }
}
