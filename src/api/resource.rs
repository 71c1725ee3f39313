//! A resource: its group, version and plural name, and its properties from discovery.

mod api_resource;
mod gvr;
mod representation;

pub use self::api_resource::built_in;
pub use self::api_resource::{ApiResource, Shape};
pub use self::gvr::{GroupVersionResource, Names, Scope};
pub use self::representation::Representation;
