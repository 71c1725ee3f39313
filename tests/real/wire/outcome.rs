//! The outcome of a request at one server.

use crate::suite::wire::Answer;

/// The end of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A response, which is whole unless its `broken` says otherwise.
    Answer,
    /// The connection ended without a response.
    Closed,
    /// The stream was reset, with this code of HTTP/2.
    Reset(String),
    /// Nothing came in time.
    Silent,
}

/// Whether another request can follow on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usable {
    Yes,
    No,
    /// The next request gets a response that is not its own.
    Confused,
    /// Nobody can say: the client itself has left something out.
    Unclear,
}

/// The outcome of a request at one server.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) end: End,
    /// The number of 1xx responses that came before.
    pub(crate) interim: usize,
    pub(crate) answer: Answer,
    pub(crate) usable: Usable,
}

impl Outcome {
    /// An end without a response.
    pub(crate) fn without_answer(end: End) -> Self {
        let usable = if end == End::Closed { Usable::No } else { Usable::Unclear };
        Self { end, interim: 0, answer: Answer::default(), usable }
    }

    /// The status, or the end without one, for messages and counts.
    pub(crate) fn label(&self) -> String {
        match &self.end {
            End::Answer => match self.answer.broken {
                None => self.answer.status.to_string(),
                Some(how) => format!("{} {how}", self.answer.status),
            },
            End::Closed => "closed".to_owned(),
            End::Reset(code) => format!("reset {code}"),
            End::Silent => "silent".to_owned(),
        }
    }
}
