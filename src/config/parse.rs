//! Parses and prints the configuration's values: patterns and names of resources, log formats, the
//! behaviour at a relist, hosts and URLs. A printed value parses to the same value.

pub(super) mod identity;

use std::fmt;
use std::str::FromStr;

use crate::api::resource::GroupVersionResource;
use crate::config::{
    AdminDetail, ConsistentLists, FlowControlMode, LogFormat, OnRelist, ResourcePattern, VerifyMode,
};

/// `pods`, `*` for all, `apps/deployments`, `apps/*`, `*/leases`; `/*` is every resource of the
/// core group.
impl FromStr for ResourcePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected RESOURCE, GROUP/RESOURCE or * (such as pods or apps/deployments), not {text:?}"
            )
        };
        let part = |word: &str| match word {
            "*" => Some(None),
            word if is_name(word) => Some(Some(word.to_owned())),
            _ => None,
        };
        let (group, resource) = match text.split_once('/') {
            None if text == "*" => (None, "*"),
            None => (Some(String::new()), text),
            Some(("", resource)) => (Some(String::new()), resource),
            Some((group, resource)) => (part(group).ok_or_else(expected)?, resource),
        };
        Ok(Self { group, resource: part(resource).ok_or_else(expected)? })
    }
}

/// Parses and prints the values of an enum by their words in the configuration file.
macro_rules! words {
    ($type:ident, $expected:literal, {$($value:ident: $word:literal),+}) => {
        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$value),)+
                    _ => Err(format!(concat!("expected ", $expected, ", not {:?}"), text)),
                }
            }
        }

        /// The value in the configuration file.
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$value => $word,)+
                })
            }
        }
    };
}

words!(LogFormat, "text, json or kubernetes", {
    Text: "text", Json: "json", Kubernetes: "kubernetes"
});
words!(OnRelist, "keepStreams or endStreams", {
    KeepStreams: "keepStreams", EndStreams: "endStreams"
});
words!(AdminDetail, "local or none", { Local: "local", None: "none" });
words!(FlowControlMode, "off, observe or enforce", {
    Off: "off", Observe: "observe", Enforce: "enforce"
});
words!(VerifyMode, "off, observe or enforce", {
    Off: "off", Observe: "observe", Enforce: "enforce"
});
// `always` is for tests and benchmarks. The message does not offer it to operators.
words!(ConsistentLists, "forward or auto", {
    Forward: "forward", Auto: "auto", Always: "always"
});

/// The value in the configuration file.
impl fmt::Display for ResourcePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.group.as_deref(), self.resource.as_deref()) {
            (None, None) => f.write_str("*"),
            (None, Some(resource)) => write!(f, "*/{resource}"),
            (Some(""), Some(resource)) => f.write_str(resource),
            (Some(group), resource) => write!(f, "{group}/{}", resource.unwrap_or("*")),
        }
    }
}

/// Parses `v1/pods` or `apps/v1/deployments`.
pub(super) fn warm_resource(text: &str) -> Result<GroupVersionResource, String> {
    let words: Vec<&str> = text.split('/').collect();
    match *words.as_slice() {
        [version, resource] if is_name(version) && is_name(resource) => {
            Ok(GroupVersionResource::new("", version, resource))
        }
        [group, version, resource] if is_name(group) && is_name(version) && is_name(resource) => {
            Ok(GroupVersionResource::new(group, version, resource))
        }
        _ => Err(format!(
            "expected VERSION/RESOURCE or GROUP/VERSION/RESOURCE (such as v1/pods or apps/v1/deployments), not {text:?}"
        )),
    }
}

/// Whether a word has only the characters of groups, versions and resources: RFC 1123, lower-case.
fn is_name(word: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    !word.is_empty() && word.bytes().all(allowed)
}

/// Parses a DNS name or an IP address, without a port.
pub(super) fn host_name(text: String) -> Result<String, String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.' || b == b'_';
    let is_name = !text.is_empty() && text.len() <= HOST_NAME_MAX && text.bytes().all(allowed);
    if is_name || text.parse::<std::net::IpAddr>().is_ok() {
        Ok(text)
    } else {
        Err(format!("expected a DNS name or an IP address without a port, not {text:?}"))
    }
}

/// Parses the URL of a server, which may have a path before the API's, and no user information.
pub(super) fn upstream_url(text: String) -> Result<String, String> {
    let expected = || format!("expected a URL such as https://10.0.0.1:6443, not {text:?}");
    let uri: http::Uri = text.parse().map_err(|_| {
        if text.contains('@') {
            "cannot be parsed as a URL, and is not repeated here because it may contain a password"
                .to_owned()
        } else {
            expected()
        }
    })?;
    let scheme = uri.scheme_str().unwrap_or_default();
    let has_host = uri.host().is_some_and(|host| !host.is_empty());
    let userinfo = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if userinfo {
        // The message omits the URL, which may contain a password.
        return Err(
            "contains a user name; put credentials into the kubeconfig, under users".to_owned()
        );
    }
    if !matches!(scheme, "https" | "http") || !has_host || uri.query().is_some() {
        return Err(expected());
    }
    Ok(text)
}

/// RFC 1035.
const HOST_NAME_MAX: usize = 253;
