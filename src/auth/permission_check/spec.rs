//! The upstream permissions that a configuration needs, their purpose, and the rules that grant
//! them.

use crate::auth::x509::CREDENTIAL_ID;
use crate::config::{AuthenticationConfig, AuthorizationConfig, Mode};
use crate::upstream::self_review::ResourceAttributes;

crate::api::labels! {
    /// An upstream permission of Weir's own identity.
    pub enum Permission {
        /// `tokenreviews`: to create token reviews.
        TokenReviews = "tokenreviews",
        /// `subjectaccessreviews`: to create access reviews.
        SubjectAccessReviews = "subjectaccessreviews",
        /// `authentication-config`: to read the cluster's authentication settings.
        AuthenticationConfig = "authentication-config",
        /// `resources`: to list and watch all resources.
        Resources = "resources",
        /// `definitions`: to list and watch CRDs and APIServices.
        Definitions = "definitions",
        /// `rbac`: to list and watch roles and bindings.
        Rbac = "rbac",
        /// `impersonate`: to impersonate all users and groups.
        Impersonate = "impersonate",
        /// `impersonate-credential-id`: to set the credential ID of an impersonated user, which
        /// identifies the client certificate.
        ImpersonateCredentialId = "impersonate-credential-id",
    }
}

/// A permission that the configuration specs.
#[derive(Debug)]
pub(super) struct PermissionSpec {
    pub(super) permission: Permission,
    /// Whether a configured feature depends on all of it.
    pub(super) required: bool,
    /// The reviews that must all be allowed.
    pub(super) attributes: &'static [ResourceAttributes<'static>],
    /// The effect of a missing permission, for the log.
    pub(super) effect: &'static str,
    /// The rule that grants the permission, for the log.
    pub(super) rule: &'static str,
}

/// Returns the permissions that these settings need. Sidecar mode needs none for reviews: it makes
/// no decisions about clients, and the client may read what Weir may read.
pub(super) fn needed(
    authentication: &AuthenticationConfig,
    authorization: &AuthorizationConfig,
) -> Vec<PermissionSpec> {
    let mut specs = vec![RESOURCES, DEFINITIONS];
    if authentication.mode == Mode::Gateway {
        specs.extend([TOKEN_REVIEWS, SUBJECT_ACCESS_REVIEWS]);
        if authentication.client_ca.is_none() || authentication.request_header.is_none() {
            specs.push(AUTHENTICATION_CONFIG);
        }
        if authorization.rbac.enabled {
            specs.push(RBAC);
        }
        if authentication.impersonate && authentication.front_proxy.is_none() {
            specs.extend([IMPERSONATE, IMPERSONATE_CREDENTIAL_ID]);
        }
    }
    specs
}

const TOKEN_REVIEWS: PermissionSpec = PermissionSpec {
    permission: Permission::TokenReviews,
    required: true,
    attributes: &[for_verb("create", "authentication.k8s.io", "tokenreviews")],
    effect: "requests with a bearer token are not answered from the caches; all are forwarded",
    rule: "ClusterRole rule: {apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]}; part of the ClusterRole system:auth-delegator",
};

const SUBJECT_ACCESS_REVIEWS: PermissionSpec = PermissionSpec {
    permission: Permission::SubjectAccessReviews,
    required: true,
    attributes: &[for_verb("create", "authorization.k8s.io", "subjectaccessreviews")],
    effect: "only what the cluster's roles allow is answered from the caches, if authorization.rbac is on; all other requests are forwarded",
    rule: "ClusterRole rule: {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}; part of the ClusterRole system:auth-delegator",
};

const AUTHENTICATION_CONFIG: PermissionSpec = PermissionSpec {
    permission: Permission::AuthenticationConfig,
    required: true,
    attributes: &[ResourceAttributes {
        namespace: "kube-system",
        verb: "get",
        resource: "configmaps",
        name: "extension-apiserver-authentication",
        ..EMPTY
    }],
    effect: "client certificates and front proxies are not authenticated, unless authentication.clientCA and authentication.requestHeader are set",
    rule: "kubectl -n kube-system create rolebinding weir-authentication-reader --role=extension-apiserver-authentication-reader --serviceaccount=NAMESPACE:NAME",
};

/// Not required: a role with least privilege excludes Secrets at least, and this review only shows
/// whether all resources are allowed.
const RESOURCES: PermissionSpec = PermissionSpec {
    permission: Permission::Resources,
    required: false,
    attributes: &[for_verb("list", "*", "*"), for_verb("watch", "*", "*")],
    effect: "requests for resources that Weir may not list and watch are forwarded",
    rule: "ClusterRole rule: {apiGroups: [\"*\"], resources: [\"*\"], verbs: [list, watch]}, or better only for the resources to cache",
};

const RBAC: PermissionSpec = PermissionSpec {
    permission: Permission::Rbac,
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
    effect: "Weir does not decide by the cluster's roles; every decision that is not cached needs an access review",
    rule: "ClusterRole rule: {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles, clusterrolebindings, roles, rolebindings], verbs: [list, watch]}",
};

/// Not required: a role with least privilege names the users and groups, and there is no way to
/// list them.
const IMPERSONATE: PermissionSpec = PermissionSpec {
    permission: Permission::Impersonate,
    required: false,
    attributes: &[for_verb("impersonate", "", "users"), for_verb("impersonate", "", "groups")],
    effect: "the upstream refuses forwarded requests of users with a client certificate, except for the users and groups that Weir's role names",
    rule: "ClusterRole rule: {apiGroups: [\"\"], resources: [users, groups], verbs: [impersonate]}, or better with resourceNames",
};

const IMPERSONATE_CREDENTIAL_ID: PermissionSpec = PermissionSpec {
    permission: Permission::ImpersonateCredentialId,
    required: true,
    attributes: &[ResourceAttributes {
        verb: "impersonate",
        group: "authentication.k8s.io",
        resource: "userextras",
        subresource: CREDENTIAL_ID,
        ..EMPTY
    }],
    effect: "the upstream refuses forwarded requests of users with a client certificate",
    rule: "ClusterRole rule: {apiGroups: [authentication.k8s.io], resources: [userextras/authentication.kubernetes.io/credential-id], verbs: [impersonate]}",
};

/// Not required: requests are forwarded without it.
const DEFINITIONS: PermissionSpec = PermissionSpec {
    permission: Permission::Definitions,
    required: false,
    attributes: &[
        for_verb("list", "apiextensions.k8s.io", "customresourcedefinitions"),
        for_verb("watch", "apiextensions.k8s.io", "customresourcedefinitions"),
        for_verb("list", "apiregistration.k8s.io", "apiservices"),
        for_verb("watch", "apiregistration.k8s.io", "apiservices"),
    ],
    effect: "requests for custom resources are forwarded; without the APIServices, all requests are, since an aggregated API server may serve any group",
    rule: "ClusterRole rules: {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [list, watch]}, {apiGroups: [apiregistration.k8s.io], resources: [apiservices], verbs: [list, watch]}",
};

const fn rbac(verb: &'static str, resource: &'static str) -> ResourceAttributes<'static> {
    for_verb(verb, "rbac.authorization.k8s.io", resource)
}

const fn for_verb(
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
) -> ResourceAttributes<'static> {
    ResourceAttributes { verb, group, resource, ..EMPTY }
}

const EMPTY: ResourceAttributes<'static> = ResourceAttributes {
    namespace: "",
    verb: "",
    group: "",
    resource: "",
    subresource: "",
    name: "",
};
