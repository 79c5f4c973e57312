//! Runs the server: listens, accepts connections, and shuts down without losing a request.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout_at};

use crate::connection::{Activity, Socket};
use crate::error::{Error, Result};
use crate::host::AllowedHosts;
use crate::observer::{ServerEvent, ServerObserver};
use crate::options::ServeOptions;
use crate::registry::{ModelSource, Registry};
use crate::served_model::RunLimits;
use crate::service;
use crate::state::ServerState;

/// Listening server, which serves once [`run`](Self::run) is called.
pub struct Server {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<ServerState>,
    connections: usize,
    stop: watch::Sender<bool>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Handle that shuts a server down from any thread.
#[derive(Clone, Debug)]
pub struct ServerHandle(watch::Sender<bool>);

impl ServerHandle {
    /// Starts the shutdown: the server is no longer ready, refuses new connections and new inference requests, and ends once
    /// the current requests are answered.
    pub fn shut_down(&self) {
        self.0.send_replace(true);
    }
}

/// Summary of a server's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct ServeReport {
    /// Number of requests not answered within [`Timeouts::drain`](crate::Timeouts::drain).
    pub unfinished: usize,
}

/// Orders that the server broadcasts to all connections. Each tells idle connections to close; `true` tells all others to
/// close after the current response.
#[derive(Clone, Debug)]
struct Orders(watch::Sender<bool>);

/// Shortest idle time after which a connection is closed to make room.
const CLOSABLE_IDLE_MIN: Duration = Duration::from_secs(1);

impl Server {
    /// Binds the address, then loads the models.
    ///
    /// # Errors
    /// Returns an error if one of the allowed hosts is not a host name, if the address is in use or not local, or if a model
    /// cannot be loaded.
    pub fn new(
        options: &ServeOptions,
        models: ModelSource,
        observer: Arc<dyn ServerObserver>,
    ) -> Result<Self> {
        let hosts = AllowedHosts::new(&options.allowed_hosts)?;
        // One thread moves bytes. Models have threads of their own, and large bodies are parsed on blocking threads.
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(byte_source::core_share().max(2))
            .thread_name("bodies")
            .build()
            .map_err(Error::System)?;
        let bind = |source| Error::Bind { host: options.host.clone(), port: options.port, source };
        let listener =
            runtime.block_on(TcpListener::bind((options.host.as_str(), options.port))).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let run = RunLimits { queue: options.limits.queue, compute: options.timeouts.compute };
        let registry = Registry::new(models, run, observer.clone())?;
        let state = Arc::new(ServerState::new(options, hosts, registry, observer));
        let connections = options.limits.connections.clamp(1, Semaphore::MAX_PERMITS);
        Ok(Self { runtime, listener, address, state, connections, stop: watch::Sender::new(false) })
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a handle that shuts this server down.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle(self.stop.clone())
    }

    /// Serves until a [`ServerHandle`] shuts the server down.
    pub fn run(self) -> ServeReport {
        let Self { runtime, listener, state, connections, stop, .. } = self;
        let report = runtime.block_on(serve(listener, &state, connections, stop.subscribe()));
        // The thread of a model that still runs is not joined.
        runtime.shutdown_background();
        report
    }
}

async fn serve(
    listener: TcpListener,
    state: &Arc<ServerState>,
    limit: usize,
    mut stop: watch::Receiver<bool>,
) -> ServeReport {
    let orders = Orders(watch::Sender::new(false));
    let room = Arc::new(Semaphore::new(limit));
    while let Some(accepted) = accept(&listener, &mut stop).await {
        match accepted {
            Ok((stream, client)) => {
                let Some(permit) = acquire_permit(&room, &orders, &mut stop).await else { break };
                spawn_connection(state, stream, client, permit, &orders);
            }
            Err(error) => {
                state.observer.event(&ServerEvent::Accept { error: &error });
                if is_local_failure(&error) {
                    // No file descriptors are left. Closing idle connections frees some.
                    orders.make_room();
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    state.drain();
    let deadline = Instant::now().checked_add(state.timeouts.drain).unwrap_or_else(Instant::now).into();
    state.observer.event(&ServerEvent::Draining { requests: *state.in_flight.borrow() });
    // Connections in the backlog of the system are still answered; later ones are refused.
    // Until the runtime has looked at the socket once more, it does not know all of them.
    yield_now().await;
    while let Some(Ok((stream, client))) = accept_pending(&listener).await {
        if let Ok(permit) = room.clone().try_acquire_owned() {
            spawn_connection(state, stream, client, permit, &orders);
        }
    }
    drop(listener);
    let mut in_flight = state.in_flight.subscribe();
    let _ = timeout_at(deadline, in_flight.wait_for(|count| *count == 0)).await;
    orders.close_all();
    let all = u32::try_from(limit).unwrap_or(u32::MAX);
    let _ = timeout_at(deadline, room.acquire_many(all)).await;
    ServeReport { unfinished: *in_flight.borrow() }
}

impl Orders {
    fn make_room(&self) {
        self.0.send_replace(false);
    }

    fn close_all(&self) {
        self.0.send_replace(true);
    }
}

/// Accepts the next connection; `None` once the server is to stop.
async fn accept(
    listener: &TcpListener,
    stop: &mut watch::Receiver<bool>,
) -> Option<io::Result<(TcpStream, SocketAddr)>> {
    let mut stopped = pin!(stop.wait_for(|stop| *stop));
    poll_fn(|cx| {
        if stopped.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        listener.poll_accept(cx).map(Some)
    })
    .await
}

/// Accepts a connection from the backlog of the system, without waiting; `None` if it is empty.
async fn accept_pending(listener: &TcpListener) -> Option<io::Result<(TcpStream, SocketAddr)>> {
    poll_fn(|cx| match listener.poll_accept(cx) {
        Poll::Ready(accepted) => Poll::Ready(Some(accepted)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Acquires a permit for one more connection, closing idle ones if none is free; `None` once the server is to stop.
async fn acquire_permit(
    room: &Arc<Semaphore>,
    orders: &Orders,
    stop: &mut watch::Receiver<bool>,
) -> Option<OwnedSemaphorePermit> {
    loop {
        if let Ok(permit) = room.clone().try_acquire_owned() {
            return Some(permit);
        }
        orders.make_room();
        let mut stopped = pin!(stop.wait_for(|stop| *stop));
        let mut acquired = pin!(room.clone().acquire_owned());
        // Connections used too recently to be closed may be idle for long enough by then.
        let mut later = pin!(sleep(CLOSABLE_IDLE_MIN));
        let permit = poll_fn(|cx| {
            if stopped.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Some(None));
            }
            match acquired.as_mut().poll(cx) {
                Poll::Ready(permit) => Poll::Ready(Some(permit.ok())),
                Poll::Pending => later.as_mut().poll(cx).map(|()| None),
            }
        })
        .await;
        if let Some(permit) = permit {
            return permit;
        }
    }
}

/// Returns true if an accept error comes from this machine, such as a lack of file descriptors, rather than from one client.
fn is_local_failure(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

fn spawn_connection(
    state: &Arc<ServerState>,
    stream: TcpStream,
    client: SocketAddr,
    permit: OwnedSemaphorePermit,
    orders: &Orders,
) {
    tokio::spawn(run_connection(state.clone(), stream, client, permit, orders.0.subscribe()));
}

enum ConnectionEvent {
    Closed,
    Orders,
}

async fn run_connection(
    state: Arc<ServerState>,
    stream: TcpStream,
    client: SocketAddr,
    _permit: OwnedSemaphorePermit,
    mut orders: watch::Receiver<bool>,
) {
    // Disables Nagle's algorithm. If the system refuses, responses are merely slower.
    let _ = stream.set_nodelay(true);
    let activity = Activity::new();
    let (limits, timeouts) = (state.limits, state.timeouts);
    let socket = Socket::new(stream, activity.clone());
    let answer = {
        let activity = activity.clone();
        service_fn(move |request| service::answer(state.clone(), request, client, activity.clone()))
    };
    let mut builder = http1::Builder::new();
    // The watch below has separate timeouts for headers and between requests; hyper has one for both.
    builder.header_read_timeout(None);
    builder.max_headers(limits.headers).max_header_size(limits.head);
    builder.max_buf_size(limits.head.saturating_mul(2).max(64 << 10));
    let mut connection = pin!(builder.serve_connection(socket, answer));
    let mut late = pin!(sleep(timeouts.idle));
    loop {
        let next = {
            let mut ordered = pin!(orders.changed());
            poll_fn(|cx| {
                if connection.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(ConnectionEvent::Closed);
                }
                match ordered.as_mut().poll(cx) {
                    Poll::Ready(Ok(())) => return Poll::Ready(ConnectionEvent::Orders),
                    Poll::Ready(Err(_)) => return Poll::Ready(ConnectionEvent::Closed),
                    Poll::Pending => {}
                }
                let Some(deadline) = activity.deadline(&timeouts) else { return Poll::Pending };
                if late.deadline() != deadline.into() {
                    late.as_mut().reset(deadline.into());
                }
                // A late connection is closed by dropping it.
                late.as_mut().poll(cx).map(|()| ConnectionEvent::Closed)
            })
            .await
        };
        if let ConnectionEvent::Closed = next {
            return;
        }
        let close = *orders.borrow_and_update();
        if close || activity.idle_for().is_some_and(|idle| idle >= CLOSABLE_IDLE_MIN) {
            connection.as_mut().graceful_shutdown();
        }
        if close && activity.is_between_requests() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_one_client_are_not_those_of_this_machine() {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, OutOfMemory, PermissionDenied};
        for kind in [ConnectionAborted, ConnectionReset] {
            assert!(!is_local_failure(&kind.into()), "{kind}");
        }
        for kind in [OutOfMemory, PermissionDenied] {
            assert!(is_local_failure(&kind.into()), "{kind}");
        }
        #[cfg(unix)]
        assert!(is_local_failure(&io::Error::from_raw_os_error(24)), "too many open files");
    }
}
