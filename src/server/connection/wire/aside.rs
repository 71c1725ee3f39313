//! The parts of a request that cannot pass through hyper, beside that request.

use http::{HeaderMap, Request, StatusCode};

use crate::api::status::Status;
use crate::server::http::refusal;

/// The part of a request head that hyper cannot read.
#[derive(Debug)]
pub(crate) enum Aside {
    /// The head is refused. hyper gets another one in its place.
    Refused(RefusedHead),
    /// Most fields of a head that has very many.
    Fields(Box<HeaderMap>),
}

/// The reason why a head is refused. An extension of the request that takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedHead(pub(crate) Status);

impl Aside {
    pub(crate) fn add_to<B>(self, request: &mut Request<B>) {
        match self {
            Self::Refused(refused) => {
                request.extensions_mut().insert(refused);
            }
            Self::Fields(mut fields) => {
                for (name, value) in request.headers() {
                    // There is room: the limit on fields is lower than that of a map.
                    drop(fields.try_append(name.clone(), value.clone()));
                }
                *request.headers_mut() = *fields;
            }
        }
    }
}

impl RefusedHead {
    /// A head that Go's server refuses too.
    pub(crate) fn bad_request(why: &str) -> Self {
        Self(refusal::not_understood(why))
    }

    pub(super) fn too_long(bytes_max: usize) -> Self {
        Self::too_large(format!("weir accepts at most {bytes_max} bytes before a body"))
    }

    pub(crate) fn too_many_fields() -> Self {
        Self::too_large(format!("weir accepts at most {HEADERS_MAX} header fields"))
    }

    pub(super) fn name_too_long() -> Self {
        Self::too_large("weir accepts at most 64 KiB in the name of a header field".to_owned())
    }

    pub(super) fn target_too_long() -> Self {
        Self(refusal::target_too_long())
    }

    /// A coding of the body but `chunked`, with the code of Go's server.
    pub(super) fn unsupported_coding() -> Self {
        let message = "weir reads no Transfer-Encoding but chunked, once".to_owned();
        Self(refusal::refusal(StatusCode::NOT_IMPLEMENTED, "NotImplemented", message))
    }

    /// An expectation but `100-continue`, with the code of Go's server.
    pub(super) fn expectation_failed() -> Self {
        let message = "weir meets no expectation but 100-continue".to_owned();
        let code = StatusCode::EXPECTATION_FAILED;
        Self(refusal::refusal(code, "ExpectationFailed", message))
    }

    /// A version but 1.0 and 1.1, with the code of Go's server.
    pub(super) fn unsupported_version() -> Self {
        let message = "weir speaks the versions 1.0, 1.1 and 2 of HTTP".to_owned();
        let code = StatusCode::HTTP_VERSION_NOT_SUPPORTED;
        Self(refusal::refusal(code, "HTTPVersionNotSupported", message))
    }

    fn too_large(message: String) -> Self {
        let code = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        Self(refusal::refusal(code, "RequestHeaderFieldsTooLarge", message))
    }
}

/// The limit on header fields of a request, in both protocols. kube-apiserver has this limit from
/// 1.38 on; before, the limit is that of Go's server: 500 in Go 1.27, and none but that on their
/// bytes in older ones. A map of headers holds 24,576 names, and another insertion panics, so that
/// Weir can add its own.
pub(crate) const HEADERS_MAX: usize = 16_384;
