//! The few messages of `metav1` that Weir reads or writes.

use prost::Message;

/// `metav1.ListMeta`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListMeta {
    /// Always empty.
    #[prost(string, optional, tag = "1")]
    pub self_link: Option<String>,
    /// The list's resourceVersion.
    #[prost(string, optional, tag = "2")]
    pub resource_version: Option<String>,
    /// The token for the next page.
    #[prost(string, optional, tag = "3")]
    pub continue_token: Option<String>,
    /// A pointer in Go, so it may be absent.
    #[prost(int64, optional, tag = "4")]
    pub remaining_item_count: Option<i64>,
    /// Present in a list by a shard selector.
    #[prost(message, optional, tag = "5")]
    pub shard_info: Option<ShardInfo>,
}

/// `metav1.ShardInfo`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ShardInfo {
    /// The shard selector.
    #[prost(string, optional, tag = "1")]
    pub selector: Option<String>,
}

/// `metav1.Status`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Status {
    /// Empty.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ListMeta>,
    /// `Failure`.
    #[prost(string, optional, tag = "2")]
    pub status: Option<String>,
    /// The message for people.
    #[prost(string, optional, tag = "3")]
    pub message: Option<String>,
    /// The machine-readable reason.
    #[prost(string, optional, tag = "4")]
    pub reason: Option<String>,
    /// The object or resource of the failure.
    #[prost(message, optional, tag = "5")]
    pub details: Option<StatusDetails>,
    /// The HTTP status.
    #[prost(int32, optional, tag = "6")]
    pub code: Option<i32>,
}

/// `metav1.StatusDetails`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StatusDetails {
    /// The object's name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// The resource's group.
    #[prost(string, optional, tag = "2")]
    pub group: Option<String>,
    /// The resource's kind.
    #[prost(string, optional, tag = "3")]
    pub kind: Option<String>,
    /// The single causes.
    #[prost(message, repeated, tag = "4")]
    pub causes: Vec<StatusCause>,
    /// Seconds after which a retry may help.
    #[prost(int32, optional, tag = "5")]
    pub retry_after_seconds: Option<i32>,
    /// The object's uid.
    #[prost(string, optional, tag = "6")]
    pub uid: Option<String>,
}

/// `metav1.StatusCause`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StatusCause {
    /// The machine-readable reason of the cause.
    #[prost(string, optional, tag = "1")]
    pub reason: Option<String>,
    /// The message for people.
    #[prost(string, optional, tag = "2")]
    pub message: Option<String>,
    /// The field that caused it.
    #[prost(string, optional, tag = "3")]
    pub field: Option<String>,
}
