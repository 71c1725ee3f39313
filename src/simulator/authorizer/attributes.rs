//! The attributes of a request that decide whether it is allowed, and the decision.

use crate::request::Request;

/// The attributes of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes {
    pub(crate) verb: String,
    /// The API group.
    pub(crate) group: String,
    pub(crate) resource: String,
    /// The subresource; empty for none.
    pub(crate) subresource: String,
    /// The namespace; empty for the cluster scope.
    pub(crate) namespace: String,
    /// The object's name; empty for none.
    pub(crate) name: String,
    /// The path of a non-resource request; `None` for a resource.
    pub(crate) path: Option<String>,
}

impl Attributes {
    /// Returns the attributes of an HTTP request.
    pub(crate) fn from_request(request: &Request) -> Self {
        match &request.target {
            Some(target) => Self {
                verb: target.verb.to_owned(),
                group: target.group.clone(),
                resource: target.resource.clone(),
                subresource: target.subresource.clone(),
                namespace: target.namespace.clone(),
                name: target.name.clone(),
                path: None,
            },
            None => {
                let path = Some(request.path.clone());
                Self { verb: request.verb(), path, ..Self::default() }
            }
        }
    }

    /// Returns the resource with its subresource, as rules and messages name it.
    pub(crate) fn combined(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }
}

/// The decision about a request, with its reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decision {
    pub(crate) allowed: bool,
    /// The reason, or the errors of the evaluation. Usually empty for a denial.
    pub(crate) reason: String,
}
