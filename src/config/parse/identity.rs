//! Parses and prints the values of `authentication`, `authorization` and `audit`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::config::{Anonymous, AuditBuffer, AuditLevel, AuditOutput, Mode};

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "sidecar" => Ok(Self::Sidecar),
            "gateway" => Ok(Self::Gateway),
            _ => Err(format!("expected sidecar or gateway, not {text:?}")),
        }
    }
}

impl FromStr for Anonymous {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "forward" => Ok(Self::Forward),
            "authorize" => Ok(Self::Authorize),
            "refuse" => Ok(Self::Refuse),
            _ => Err(format!("expected forward, authorize or refuse, not {text:?}")),
        }
    }
}

impl FromStr for AuditBuffer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "blocking" => Ok(Self::Blocking),
            "dropping" => Ok(Self::Dropping),
            _ => Err(format!("expected blocking or dropping, not {text:?}")),
        }
    }
}

/// The level in audit.k8s.io/v1.
impl FromStr for AuditLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "None" => Ok(Self::None),
            "Metadata" => Ok(Self::Metadata),
            _ => Err(format!(
                "expected None or Metadata, not {text:?}; bodies of requests and responses are never logged"
            )),
        }
    }
}

/// Parses `none`, `stdout` or the absolute path of a file.
pub(in crate::config) fn audit_output(text: &str) -> Result<Option<AuditOutput>, String> {
    match text {
        "none" => Ok(None),
        "stdout" => Ok(Some(AuditOutput::Stdout)),
        path if Path::new(path).is_absolute() && !path.ends_with('/') => {
            Ok(Some(AuditOutput::File(PathBuf::from(path))))
        }
        _ => Err(format!("expected none, stdout or the absolute path of a file, not {text:?}")),
    }
}

/// The value in the configuration file.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sidecar => "sidecar",
            Self::Gateway => "gateway",
        })
    }
}

/// The value in the configuration file.
impl fmt::Display for Anonymous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Authorize => "authorize",
            Self::Refuse => "refuse",
        })
    }
}

/// The value in the configuration file.
impl fmt::Display for AuditBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Blocking => "blocking",
            Self::Dropping => "dropping",
        })
    }
}

/// The level in audit.k8s.io/v1.
impl fmt::Display for AuditLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
        })
    }
}

/// The value in the configuration file.
impl fmt::Display for AuditOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("stdout"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Parses the name of a header that carries a part of an identity. Headers with another meaning are
/// rejected: Weir removes identity headers from every request, and a request without its Host or
/// Content-Length would be a different request.
pub(in crate::config) fn identity_header(text: String) -> Result<String, String> {
    let name = header_name(text)?;
    if RESERVED_HEADERS.iter().any(|reserved| reserved.eq_ignore_ascii_case(&name)) {
        return Err(format!("{name} has another meaning, and cannot carry an identity"));
    }
    Ok(name)
}

/// Parses the prefix of identity headers.
pub(in crate::config) fn identity_prefix(text: String) -> Result<String, String> {
    let prefix = header_name(text)?;
    let begins = |name: &&&str| {
        name.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(&prefix))
    };
    match RESERVED_HEADERS.iter().find(begins) {
        Some(reserved) => Err(format!("{prefix} begins {reserved} too, which has another meaning")),
        None => Ok(prefix),
    }
}

fn header_name(text: String) -> Result<String, String> {
    match http::HeaderName::from_bytes(text.as_bytes()) {
        Ok(_) => Ok(text),
        Err(_) => Err(format!("expected the name of a header, not {text:?}")),
    }
}

/// Headers that frame, route, authenticate or negotiate a request.
const RESERVED_HEADERS: &[&str] = &[
    "Accept",
    "Accept-Encoding",
    "Authorization",
    "Connection",
    "Content-Encoding",
    "Content-Length",
    "Content-Type",
    "Cookie",
    "Expect",
    "Host",
    "If-None-Match",
    "Impersonate-Extra-",
    "Impersonate-Group",
    "Impersonate-Uid",
    "Impersonate-User",
    "Keep-Alive",
    "Origin",
    "Proxy-Authorization",
    "Proxy-Connection",
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Protocol",
    "Sec-WebSocket-Version",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "User-Agent",
];
