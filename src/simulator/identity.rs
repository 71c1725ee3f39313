//! Who asks, and what they may do: bearer tokens of the configured users, impersonation by administrators, and each
//! user's own rules (semantics.md §12). Roles and bindings can be stored, but grant nothing.

use http::{HeaderMap, header};

use super::options::{Rule, User};
use super::request::Request;
use super::status::{ApiError, qualified};
use super::websocket;

/// An authenticated user.
#[derive(Clone, Debug, Default)]
pub(super) struct Identity {
    /// The user's name.
    pub(super) name: String,
    /// All groups.
    pub(super) groups: Vec<String>,
    /// What the user may do, besides what the groups allow.
    pub(super) rules: Vec<Rule>,
}

/// What is to be done, for authorization.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes {
    /// The verb.
    pub(super) verb: String,
    /// The API group.
    pub(super) group: String,
    /// The resource; empty for a non-resource path.
    pub(super) resource: String,
    /// The subresource; empty for none.
    pub(super) subresource: String,
    /// The namespace; empty for the cluster scope.
    pub(super) namespace: String,
    /// The object's name; empty for none.
    pub(super) name: String,
    /// The path of a non-resource request.
    pub(super) path: String,
}

impl Identity {
    /// The user of a request; without configured users everybody is an administrator.
    pub(super) fn of(headers: &HeaderMap, users: &[User]) -> Result<Self, ApiError> {
        let own = Self::by_token(headers, users)?;
        let get = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let Some(name) = get("impersonate-user") else { return Ok(own) };
        if !own.is_admin() {
            let message = format!(
                "users \"{name}\" is forbidden: User \"{}\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
                own.name
            );
            return Err(ApiError::new(403, "Forbidden", message).about("", "users", name));
        }
        let groups = headers.get_all("impersonate-group").iter();
        let groups: Vec<String> =
            groups.filter_map(|value| value.to_str().ok()).map(str::to_owned).collect();
        let known = users.iter().find(|user| user.name == name);
        Ok(Self {
            name: name.to_owned(),
            groups: with_group(groups, "system:authenticated"),
            rules: known.map(|user| user.rules.clone()).unwrap_or_default(),
        })
    }

    fn by_token(headers: &HeaderMap, users: &[User]) -> Result<Self, ApiError> {
        if users.is_empty() {
            return Ok(Self::from_user(&User::admin("", "kubernetes-admin")));
        }
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = given.and_then(|text| text.split_once(' ')).map(|(scheme, token)| {
            if scheme.eq_ignore_ascii_case("bearer") { token.trim() } else { "" }
        });
        let offered = websocket::token(headers);
        let token = token.filter(|token| !token.is_empty()).or(offered.as_deref());
        match token {
            None => Ok(Self {
                name: "system:anonymous".to_owned(),
                groups: vec!["system:unauthenticated".to_owned()],
                rules: Vec::new(),
            }),
            Some(token) => Self::by_value(token, users)
                .ok_or_else(|| ApiError::new(401, "Unauthorized", "Unauthorized")),
        }
    }

    /// The user of a token.
    pub(super) fn by_value(token: &str, users: &[User]) -> Option<Self> {
        users.iter().find(|user| user.token == token).map(Self::from_user)
    }

    fn from_user(user: &User) -> Self {
        Self {
            name: user.name.clone(),
            groups: with_group(user.groups.clone(), "system:authenticated"),
            rules: user.rules.clone(),
        }
    }

    fn is_admin(&self) -> bool {
        self.groups.iter().any(|group| group == "system:masters")
    }

    /// Whether the user may do it.
    pub(super) fn may(&self, what: &Attributes) -> bool {
        if self.is_admin() {
            return true;
        }
        if what.resource.is_empty() {
            return what.verb == "get" && is_public(&what.path, &self.name);
        }
        let authenticated = self.name != "system:anonymous";
        if authenticated && what.verb == "create" && what.resource.starts_with("selfsubject") {
            return true;
        }
        let resource = match what.subresource.as_str() {
            "" => what.resource.clone(),
            subresource => format!("{}/{subresource}", what.resource),
        };
        let has =
            |list: &[String], word: &str| list.iter().any(|known| known == "*" || known == word);
        self.rules.iter().any(|rule| {
            has(&rule.verbs, &what.verb)
                && has(&rule.groups, &what.group)
                && has(&rule.resources, &resource)
                && has(&rule.namespaces, &what.namespace)
        })
    }

    /// The 403 of what the user may not do (semantics.md §12.3).
    pub(super) fn forbidden(&self, what: &Attributes) -> ApiError {
        if what.resource.is_empty() {
            let message = format!(
                "forbidden: User \"{}\" cannot {} path \"{}\"",
                self.name, what.verb, what.path
            );
            let mut error = ApiError::new(403, "Forbidden", message);
            error.details = Some(Box::default());
            return error;
        }
        let object =
            if what.name.is_empty() { String::new() } else { format!(" \"{}\"", what.name) };
        let mut resource = what.resource.clone();
        if !what.subresource.is_empty() {
            resource = format!("{resource}/{}", what.subresource);
        }
        let place = if what.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{}\"", what.namespace)
        };
        let message = format!(
            "{}{object} is forbidden: User \"{}\" cannot {} resource \"{resource}\" in API group \"{}\" {place}",
            qualified(&what.group, &what.resource),
            self.name,
            what.verb,
            what.group,
        );
        ApiError::new(403, "Forbidden", message).about(&what.group, &what.resource, &what.name)
    }
}

impl Attributes {
    /// What a request does.
    pub(super) fn of(request: &Request) -> Self {
        match &request.target {
            Some(target) => Self {
                verb: target.verb.to_owned(),
                group: target.group.clone(),
                resource: target.resource.clone(),
                subresource: target.subresource.clone(),
                namespace: target.namespace.clone(),
                name: target.name.clone(),
                path: String::new(),
            },
            None => Self { verb: request.verb(), path: request.path.clone(), ..Self::default() },
        }
    }
}

/// Paths that everyone may read, and those that every authenticated user may.
fn is_public(path: &str, user: &str) -> bool {
    const PUBLIC: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];
    let public = PUBLIC.iter().any(|known| path.starts_with(known));
    let discovery = ["/api", "/apis", "/openapi"].iter().any(|known| path.starts_with(known));
    public || (discovery && user != "system:anonymous")
}

fn with_group(mut groups: Vec<String>, group: &str) -> Vec<String> {
    if !groups.iter().any(|known| known == group) {
        groups.push(group.to_owned());
    }
    groups
}
