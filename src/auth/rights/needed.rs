//! Which rights a configuration needs, what for, and the rules that give them.

use crate::auth::rights::ResourceAttributes;
use crate::auth::x509::CREDENTIAL_ID;
use crate::config::{AuthenticationConfig, AuthorizationConfig, Mode};

/// A right, by the word for it in metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// To ask whose a token is.
    TokenReviews,
    /// To ask what a user may.
    SubjectAccessReviews,
    /// To read how the cluster authenticates.
    AuthenticationConfig,
    /// To list and watch everything.
    Resources,
    /// To list and watch what tells who serves what.
    Definitions,
    /// To list and watch roles and bindings.
    Rbac,
    /// To act in the name of any users and groups.
    Impersonate,
    /// To say of a user by which certificate it was known.
    ImpersonateCredentialId,
}

/// A right that is needed.
#[derive(Debug)]
pub(super) struct Need {
    pub(super) right: Right,
    /// Whether the configuration asks for what goes off without it.
    pub(super) required: bool,
    /// All that must be allowed.
    pub(super) attributes: &'static [ResourceAttributes],
    /// What goes off without it.
    pub(super) off: &'static str,
    /// What gives it.
    pub(super) rule: &'static str,
}

impl Right {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TokenReviews => "tokenreviews",
            Self::SubjectAccessReviews => "subjectaccessreviews",
            Self::AuthenticationConfig => "authentication-config",
            Self::Resources => "resources",
            Self::Definitions => "definitions",
            Self::Rbac => "rbac",
            Self::Impersonate => "impersonate",
            Self::ImpersonateCredentialId => "impersonate-credential-id",
        }
    }
}

/// Those that these settings need. In sidecar mode nobody is asked about, and what Weir may read is what its client may.
pub(super) fn by(
    authentication: &AuthenticationConfig,
    authorization: &AuthorizationConfig,
) -> Vec<Need> {
    let mut needs = vec![RESOURCES, DEFINITIONS];
    if authentication.mode == Mode::Gateway {
        needs.extend([TOKEN_REVIEWS, SUBJECT_ACCESS_REVIEWS]);
        if authentication.client_ca.is_none() || authentication.request_header.is_none() {
            needs.push(AUTHENTICATION_CONFIG);
        }
        if authorization.rbac.is_some() {
            needs.push(RBAC);
        }
        if authentication.impersonate && authentication.front_proxy.is_none() {
            needs.extend([IMPERSONATE, IMPERSONATE_CREDENTIAL_ID]);
        }
    }
    needs
}

const TOKEN_REVIEWS: Need = Need {
    right: Right::TokenReviews,
    required: true,
    attributes: &[ResourceAttributes {
        verb: "create",
        group: "authentication.k8s.io",
        resource: "tokenreviews",
        ..NOTHING
    }],
    off: "no request with a bearer token is answered from the caches; all are forwarded",
    rule: "ClusterRole rule: {apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]}; the ClusterRole system:auth-delegator has it",
};

const SUBJECT_ACCESS_REVIEWS: Need = Need {
    right: Right::SubjectAccessReviews,
    required: true,
    attributes: &[ResourceAttributes {
        verb: "create",
        group: "authorization.k8s.io",
        resource: "subjectaccessreviews",
        ..NOTHING
    }],
    off: "nothing is answered from the caches but what the cluster's roles allow, if authorization.rbac is on; all else is forwarded",
    rule: "ClusterRole rule: {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}; the ClusterRole system:auth-delegator has it",
};

const AUTHENTICATION_CONFIG: Need = Need {
    right: Right::AuthenticationConfig,
    required: true,
    attributes: &[ResourceAttributes {
        namespace: "kube-system",
        verb: "get",
        resource: "configmaps",
        name: "extension-apiserver-authentication",
        ..NOTHING
    }],
    off: "client certificates and front proxies are not known, unless authentication.clientCA and authentication.requestHeader are set",
    rule: "kubectl -n kube-system create rolebinding weir-authentication-reader --role=extension-apiserver-authentication-reader --serviceaccount=NAMESPACE:NAME",
};

/// Not required: a least privilege leaves out Secrets at least, and the right to all is no measure of the right to the rest.
const RESOURCES: Need = Need {
    right: Right::Resources,
    required: false,
    attributes: &[
        ResourceAttributes { verb: "list", group: "*", resource: "*", ..NOTHING },
        ResourceAttributes { verb: "watch", group: "*", resource: "*", ..NOTHING },
    ],
    off: "requests for resources that Weir may not list and watch are forwarded",
    rule: "ClusterRole rule: {apiGroups: [\"*\"], resources: [\"*\"], verbs: [list, watch]}, or better only what is to be cached",
};

const RBAC: Need = Need {
    right: Right::Rbac,
    required: true,
    attributes: &[
        rbac("list", "clusterroles"),
        rbac("watch", "clusterroles"),
        rbac("list", "clusterrolebindings"),
        rbac("watch", "clusterrolebindings"),
        rbac("list", "roles"),
        rbac("watch", "roles"),
        rbac("list", "rolebindings"),
        rbac("watch", "rolebindings"),
    ],
    off: "nothing is decided by the cluster's roles here; every new question is an access review",
    rule: "ClusterRole rule: {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles, clusterrolebindings, roles, rolebindings], verbs: [list, watch]}",
};

/// Not required: a least privilege names the users and groups, and nobody can be asked which.
const IMPERSONATE: Need = Need {
    right: Right::Impersonate,
    required: false,
    attributes: &[
        ResourceAttributes { verb: "impersonate", resource: "users", ..NOTHING },
        ResourceAttributes { verb: "impersonate", resource: "groups", ..NOTHING },
    ],
    off: "requests that must be forwarded of client certificates' users are refused by the upstream, but for the users and groups that Weir's role names",
    rule: "ClusterRole rule: {apiGroups: [\"\"], resources: [users, groups], verbs: [impersonate]}, or better with resourceNames",
};

const IMPERSONATE_CREDENTIAL_ID: Need = Need {
    right: Right::ImpersonateCredentialId,
    required: true,
    attributes: &[ResourceAttributes {
        verb: "impersonate",
        group: "authentication.k8s.io",
        resource: "userextras",
        subresource: CREDENTIAL_ID,
        ..NOTHING
    }],
    off: "requests that must be forwarded of client certificates' users are refused by the upstream",
    rule: "ClusterRole rule: {apiGroups: [authentication.k8s.io], resources: [userextras/authentication.kubernetes.io/credential-id], verbs: [impersonate]}",
};

/// Not required: what is of Kubernetes' own groups is known without.
const DEFINITIONS: Need = Need {
    right: Right::Definitions,
    required: false,
    attributes: &[
        to("list", "apiextensions.k8s.io", "customresourcedefinitions"),
        to("watch", "apiextensions.k8s.io", "customresourcedefinitions"),
        to("list", "apiregistration.k8s.io", "apiservices"),
        to("watch", "apiregistration.k8s.io", "apiservices"),
    ],
    off: "requests for resources of which it cannot be told who serves them are forwarded: custom ones, and those of groups that Weir does not know",
    rule: "ClusterRole rules: {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [list, watch]}, {apiGroups: [apiregistration.k8s.io], resources: [apiservices], verbs: [list, watch]}",
};

const fn rbac(verb: &'static str, resource: &'static str) -> ResourceAttributes {
    to(verb, "rbac.authorization.k8s.io", resource)
}

const fn to(verb: &'static str, group: &'static str, resource: &'static str) -> ResourceAttributes {
    ResourceAttributes { verb, group, resource, ..NOTHING }
}

const NOTHING: ResourceAttributes = ResourceAttributes {
    namespace: "",
    verb: "",
    group: "",
    resource: "",
    subresource: "",
    name: "",
};
