//! A server on a port of its own, and a model that does what the test says.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use kserve::{Datatype, InferRequest, ModelConfig, OutputTensor, Parameter, TensorConfig};
use serve::{
    CancelToken, InferModel, InferTask, ModelError, ModelSource, ServeOptions, ServeReport, Server,
    ServerEvent, ServerHandle, ServerObserver,
};

use crate::client::Client;

/// Only a test that fails waits so long.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// A server that runs until this is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) handle: ServerHandle,
    thread: Option<JoinHandle<ServeReport>>,
    pub(crate) events: Receiver<String>,
}

impl Running {
    pub(crate) fn start(change: impl FnOnce(&mut ServeOptions)) -> Self {
        Self::with_models(ModelSource::Fixed(vec![("m".to_owned(), Arc::new(Echo))]), change)
    }

    /// A server whose model `m` waits until the test lets it go on.
    pub(crate) fn with_gate(change: impl FnOnce(&mut ServeOptions)) -> (Self, Gate) {
        let (model, gate) = Gated::new();
        (Self::with_models(ModelSource::Fixed(vec![("m".to_owned(), Arc::new(model))]), change), gate)
    }

    pub(crate) fn with_models(models: ModelSource, change: impl FnOnce(&mut ServeOptions)) -> Self {
        let mut options = ServeOptions { port: 0, ..ServeOptions::default() };
        change(&mut options);
        let (sender, events) = channel();
        let server = Server::new(&options, models, Arc::new(Events(Mutex::new(sender)))).expect("it starts");
        let (address, handle) = (server.address(), server.handle());
        let thread = Some(thread::spawn(move || server.run()));
        Self { address, handle, thread, events }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Waits until this many requests wait for the model.
    pub(crate) fn wait_until_waiting(&self, count: u64) {
        let mut client = self.client();
        loop {
            let text = String::from_utf8(client.get("/metrics").body).expect("it is text");
            let line = text.lines().find(|line| line.starts_with("nv_inference_pending_request_count{"));
            let number = line.and_then(|line| line.rsplit_once(' ')).expect("a number").1;
            if number.parse::<u64>().expect("a number") == count {
                return;
            }
        }
    }

    /// Waits for an event whose text has `part` in it.
    pub(crate) fn wait_for(&self, part: &str) -> String {
        loop {
            let event = self.events.recv_timeout(LONG).expect("the event comes");
            if event.contains(part) {
                return event;
            }
        }
    }

    /// Waits until the server has ended.
    pub(crate) fn join(mut self) -> ServeReport {
        self.thread.take().expect("it runs").join().expect("it does not panic")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.shut_down();
    }
}

struct Events(Mutex<Sender<String>>);

impl ServerObserver for Events {
    fn event(&self, event: &ServerEvent<'_>) {
        let text = match event {
            ServerEvent::Request(request) => format!(
                "request {} {} {:?} received {} sent {}",
                request.method, request.path, request.status, request.received, request.sent
            ),
            event => format!("{event:?}"),
        };
        // A test that has ended listens no more.
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).send(text);
    }
}

/// `IN` of type FP32 and any length comes back as `OUT`.
pub(crate) struct Echo;

fn config() -> ModelConfig {
    let tensor = |name: &str| TensorConfig {
        name: name.to_owned(),
        datatype: Datatype::Fp32,
        dims: vec![None],
        optional: false,
    };
    ModelConfig {
        name: String::new(),
        platform: "test".to_owned(),
        backend: String::new(),
        max_batch_size: 4,
        input: vec![tensor("IN")],
        output: vec![tensor("OUT")],
    }
}

fn echo(request: &InferRequest) -> Vec<OutputTensor> {
    let input = &request.inputs[0];
    vec![OutputTensor {
        name: "OUT".to_owned(),
        datatype: input.datatype,
        shape: input.shape.clone(),
        parameters: Vec::new(),
        data: input.data.clone(),
        is_binary: false,
    }]
}

impl InferModel for Echo {
    fn config(&self) -> ModelConfig {
        config()
    }

    fn infer(&self, request: &InferRequest, _: &CancelToken<'_>) -> Result<Vec<OutputTensor>, ModelError> {
        let asks = |what: &str| request.parameters.contains(&(what.to_owned(), Parameter::Bool(true)));
        assert!(!asks("panic"), "as the client wishes");
        if asks("fail") {
            return Err(ModelError::Failed("out of luck".into()));
        }
        if asks("stop") {
            return Err(ModelError::Cancelled);
        }
        if asks("refuse") {
            return Err(ModelError::Input("too many tokens".into()));
        }
        if asks("nothing") {
            return Ok(Vec::new());
        }
        Ok(echo(request))
    }
}

/// A model that needs a piece for each number of its input, and says the length of the input before each piece.
pub(crate) struct InPieces {
    pub(crate) pieces: Sender<u64>,
    /// Lets a piece run.
    pub(crate) release_signal: Mutex<Receiver<()>>,
}

struct Pieces<'m> {
    model: &'m InPieces,
    request: InferRequest,
    left: u64,
}

fn length(request: &InferRequest) -> u64 {
    request.inputs[0].shape[1]
}

impl InferModel for InPieces {
    fn config(&self) -> ModelConfig {
        config()
    }

    fn infer(&self, request: &InferRequest, _: &CancelToken<'_>) -> Result<Vec<OutputTensor>, ModelError> {
        Ok(echo(request))
    }

    fn steps(&self, request: &InferRequest) -> u64 {
        length(request)
    }

    fn start<'m>(&'m self, request: InferRequest) -> Result<Box<dyn InferTask + 'm>, ModelError> {
        Ok(Box::new(Pieces { model: self, left: length(&request), request }))
    }
}

impl InferTask for Pieces<'_> {
    fn step(&mut self, cancel: &CancelToken<'_>) -> Result<Option<Vec<OutputTensor>>, ModelError> {
        let _ = self.model.pieces.send(length(&self.request));
        let go_on = self.model.release_signal.lock().unwrap_or_else(PoisonError::into_inner);
        go_on.recv_timeout(LONG).expect("the test lets each piece run");
        if cancel.is_cancelled() {
            return Err(ModelError::Cancelled);
        }
        self.left = self.left.saturating_sub(1);
        Ok((self.left == 0).then(|| echo(&self.request)))
    }
}

/// A model that says when it was called, and waits until it may go on or is cancelled.
pub(crate) struct Gated {
    called: Sender<()>,
    release_signal: Mutex<Receiver<()>>,
    cancelled: Sender<()>,
}

/// The other side of such a model.
pub(crate) struct Gate {
    called: Receiver<()>,
    release_sender: Sender<()>,
    cancelled: Receiver<()>,
}

impl Gated {
    pub(crate) fn new() -> (Self, Gate) {
        let ((called, was_called), (go, go_on), (cancelled, was_cancelled)) =
            (channel(), channel(), channel());
        let model = Self { called, release_signal: Mutex::new(go_on), cancelled };
        (model, Gate { called: was_called, release_sender: go, cancelled: was_cancelled })
    }
}

impl Gate {
    /// Waits until the model is called.
    pub(crate) fn called(&self) {
        self.called.recv_timeout(LONG).expect("the model is called");
    }

    pub(crate) fn was_called(&self) -> bool {
        self.called.try_recv().is_ok()
    }

    pub(crate) fn release_model(&self) {
        self.release_sender.send(()).expect("the model waits");
    }

    /// Waits until a call is told that nobody waits for it.
    pub(crate) fn cancelled(&self) {
        self.cancelled.recv_timeout(LONG).expect("the call is cancelled");
    }
}

impl InferModel for Gated {
    fn config(&self) -> ModelConfig {
        config()
    }

    fn infer(
        &self,
        request: &InferRequest,
        cancel: &CancelToken<'_>,
    ) -> Result<Vec<OutputTensor>, ModelError> {
        let _ = self.called.send(());
        let go_on = self.release_signal.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if cancel.is_cancelled() {
                let _ = self.cancelled.send(());
                return Err(ModelError::Cancelled);
            }
            match go_on.recv_timeout(Duration::from_millis(1)) {
                Ok(()) => return Ok(echo(request)),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return Err(ModelError::Cancelled),
            }
        }
    }
}
