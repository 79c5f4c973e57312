//! A pass of tokens through a model in pieces, and the logits that it returns.

/// Tokens of a call whose logits are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitPositions {
    /// Every token of each sequence.
    All,
    /// Last token of each sequence.
    Last,
    /// Every token of one sequence; only those of the last piece are kept, for [`ForwardPass::piece_logits`].
    Pieces,
}

/// Tokens whose logits are computed in pieces: [`ForwardModel::start`](crate::ForwardModel::start) creates it, and [`ForwardModel::advance`](crate::ForwardModel::advance) computes a piece.
#[derive(Debug)]
pub struct ForwardPass {
    /// Indices of embeddings, [batch, seq].
    pub(crate) ids: Vec<usize>,
    pub(crate) batch: usize,
    pub(crate) seq: usize,
    pub(crate) rows: LogitPositions,
    /// Tokens of each sequence in a piece.
    pub(crate) at_once: usize,
    /// Position of the next piece's first token in each sequence.
    pub(crate) first: usize,
    /// Tokens of each sequence in the cache at the end; `None` before the first piece.
    pub(crate) total: Option<usize>,
    pub(crate) logits: LogitsBuffer,
}

impl ForwardPass {
    /// Returns the logits of the last piece's tokens if the pass is one of [`LogitPositions::Pieces`]: [tokens, vocab] in C order.
    pub fn piece_logits(&self) -> &[f32] {
        self.logits.out.get(..self.logits.of_piece).unwrap_or_default()
    }

    /// Returns the logits once all pieces are computed: [batch, seq or 1, vocab] in C order.
    pub fn into_logits(self) -> Vec<f32> {
        self.logits.out
    }
}

/// Tokens of a call that go through the layers at once.
pub(crate) struct TokenChunk {
    pub(crate) batch: usize,
    /// Tokens of each sequence in the call.
    pub(crate) seq: usize,
    /// Position of the chunk's first token in each sequence of the call.
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// Tokens at the end of the chunk whose logits are returned, for each sequence.
    pub(crate) wanted: usize,
    /// Tokens of each sequence in the cache at the end of the call.
    pub(crate) total: usize,
}

#[derive(Debug)]
pub(crate) struct LogitsBuffer {
    /// Number of rows for each sequence.
    pub(crate) returned: usize,
    /// Number of logits that the last piece wrote for a sequence.
    pub(crate) of_piece: usize,
    /// Shape [batch, returned, vocab], in C order.
    pub(crate) out: Vec<f32>,
}
