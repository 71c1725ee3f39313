//! Kubernetes' vocabulary: what a request asks for and what an answer says, without any I/O.
//!
//! Everything here is pure: bytes and strings in, values out ([`memo`] saves allocations, which no value
//! shows). One parser reads the path, one the query, one each selector, so that Weir's decision, its
//! authorization and its cache keys can never disagree with one another (design, section 1.4).

pub mod continue_token;
pub mod list_options;
pub mod media_type;
mod memo;
pub mod query;
pub mod request_info;
pub mod resource;
pub mod resource_version;
pub mod selectable;
pub mod selector;
pub mod status;
