//! One upstream with a gateway in front of it: objects and grants are created, and every user can
//! send requests to both.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::json;

use super::credentials::{LONG, PROXY, Pki};
use super::grants::objects;
use super::requests::cached;
use super::users::{ADMIN, HOLDERS, Tokens, User, WEIR};
use crate::suite::objects::create;
use crate::suite::run::{HIT, Sides};
use crate::suite::wire::{Call, Endpoint};
use crate::support::{Weir, free_port};
use crate::wait::eventually;

/// The address of a server, and the CA of its certificate.
#[derive(Clone)]
pub(crate) struct Side {
    pub(crate) address: SocketAddr,
    pub(crate) ca: String,
}

/// How Weir forwards the requests of users of certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForwardedIdentity {
    FrontProxy,
    Impersonation,
}

/// The settings of Weir that differ between worlds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) forwarded_identity: ForwardedIdentity,
    /// `allowTTL` and `tokens.ttl`.
    pub(crate) cache_ttl: Duration,
    /// `watchRecheck`.
    pub(crate) watch_recheck: Duration,
    /// The filter of the log.
    pub(crate) log: &'static str,
    /// Further lines of the section `authorization`.
    pub(crate) authorization: &'static str,
}

impl Setting {
    /// Whether `authorization.rbac` is on.
    pub(crate) fn rbac(&self) -> bool {
        self.authorization.contains("rbac")
    }
}

/// The upstream and the gateway.
pub(crate) struct World {
    pub(crate) direct: Side,
    pub(crate) through: Side,
    pub(crate) pki: Arc<Pki>,
    pub(crate) tokens: Tokens,
    pub(crate) weir: Weir,
    pub(crate) setting: Setting,
    pub(crate) traits: Traits,
}

/// Differences between upstreams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    /// Whether its cache serves pages, and watches of one name in all namespaces: since 1.34
    /// (`ListFromCacheSnapshot`). Weir forwards these requests to an older one.
    pub(crate) pages_cached: bool,
    /// Whether it adds the extra field `authentication.kubernetes.io/credential-id` to users of
    /// certificates: since 1.32. Weir sends it to every upstream, and an older one returns it in a
    /// SelfSubjectReview, where it would have none of its own.
    pub(crate) credential_ids: bool,
}

/// The certificates and tokens that an upstream needs at its start.
pub(crate) struct Credentials {
    pub(crate) pki: Arc<Pki>,
    pub(crate) tokens: Tokens,
}

impl Credentials {
    pub(crate) fn new() -> Self {
        let canary = uuid::Uuid::new_v4().simple().to_string();
        let tokens = Tokens { canary, robot: String::new() };
        Self { pki: Arc::new(Pki::new()), tokens }
    }

    /// Writes a file for `--token-auth-file` that starts with these lines.
    fn token_file(&self, lines: &str) -> PathBuf {
        let line = |(number, (name, group)): (usize, &(&str, &str))| {
            let quoted = name.replace('"', "\"\"");
            format!("{},\"{quoted}\",uid-{number},\"{group}\"\n", self.tokens.token_of(name))
        };
        let text: String = HOLDERS.iter().enumerate().map(line).collect();
        self.pki.write("tokens.csv", &format!("{lines}{text}"))
    }

    /// Returns further arguments of a kube-apiserver that also accepts the tokens of these lines.
    pub(crate) fn arguments(&self, lines: &str) -> Vec<String> {
        let file = |flag: &str, path: PathBuf| format!("--{flag}={}", path.display());
        vec![
            file("token-auth-file", self.token_file(lines)),
            file("client-ca-file", self.pki.path("clients.crt")),
            file("requestheader-client-ca-file", self.pki.path("proxies.crt")),
            format!("--requestheader-allowed-names={PROXY}"),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        ]
    }
}

impl World {
    /// Fills the upstream, starts a Weir in front of it, and waits until its caches are warm.
    pub(crate) async fn start(credentials: Credentials, direct: Side, setting: Setting) -> Self {
        let Credentials { pki, mut tokens } = credentials;
        let admin = direct.as_token(&tokens.token_of(ADMIN));
        let mut connection = admin.connection();
        for (path, object) in
            objects(&tokens.canary, setting.forwarded_identity == ForwardedIdentity::Impersonation)
        {
            create(&mut connection, &path, &object).await;
        }
        tokens.robot = mint(&admin, "a", "robot").await;
        granted(&direct, &tokens).await;
        let port = free_port();
        let through =
            Side { address: SocketAddr::from(([127, 0, 0, 1], port)), ca: pki.weir.pem() };
        let kubeconfig = kubeconfig(&pki, &direct, &tokens.token_of(WEIR));
        let config = config(&pki, port, setting);
        let start = move || {
            let weir = Weir::spawn_gateway(&kubeconfig, &config, port, setting.log);
            weir.wait_until_ready();
            weir
        };
        let weir = tokio::task::spawn_blocking(start).await.unwrap();
        let traits = Traits::read(&direct, &pki, &tokens).await;
        let world = Self { direct, through, pki, tokens, weir, setting, traits };
        world.warm().await;
        world
    }

    /// Returns the connections of one user, to Weir and to the upstream.
    pub(crate) fn sides(&self, user: &User) -> Sides {
        Sides {
            direct: self.direct.endpoint_of(user),
            through: self.through.endpoint_of(user),
            moves: true,
        }
    }

    /// Returns a connection with all permissions to the upstream.
    pub(crate) fn admin(&self) -> Endpoint {
        self.direct.as_token(&self.tokens.token_of(ADMIN))
    }

    /// Returns the path of Weir's audit log.
    pub(crate) fn audit(&self) -> String {
        std::fs::read_to_string(self.pki.path(AUDIT)).unwrap_or_default()
    }

    async fn warm(&self) {
        if self.setting.rbac() {
            // Roles, cluster roles, and the bindings of both.
            let current = async || self.weir.metric("weir_rbac_current", &[]) >= 4.0;
            eventually("all roles and bindings are known", current).await;
        }
        let mut connection = self.through.as_token(&self.tokens.token_of(ADMIN)).connection();
        for call in cached(self.traits) {
            eventually(&format!("{call} comes from the cache"), async || {
                connection.send(&call).await.cache() == HIT
            })
            .await;
        }
    }
}

impl Traits {
    async fn read(direct: &Side, pki: &Pki, tokens: &Tokens) -> Self {
        let admin = direct.as_token(&tokens.token_of(ADMIN));
        let version = admin.send(&Call::get("/version")).await.json();
        let minor = version["minor"].as_str().unwrap().trim_end_matches('+');
        let pages_cached = minor.parse::<u32>().unwrap() >= 34;
        let who = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let certificate = pki.client("carl", "devs", LONG);
        let client = Some((certificate.chain.as_str(), certificate.key.as_str()));
        let endpoint = Endpoint::tls_with(direct.address, &direct.ca, client, "");
        let answer = endpoint.send(&Call::json(Method::POST, path, &who)).await.json();
        let credential_ids = answer["status"]["userInfo"].get("extra").is_some();
        Self { pages_cached, credential_ids }
    }
}

impl Side {
    pub(crate) fn as_token(&self, token: &str) -> Endpoint {
        Endpoint::tls(self.address, &self.ca, token)
    }

    pub(crate) fn endpoint_of(&self, user: &User) -> Endpoint {
        let certificate = user.certificate.as_ref();
        let client =
            certificate.map(|certificate| (certificate.chain.as_str(), certificate.key.as_str()));
        Endpoint::tls_with(self.address, &self.ca, client, &user.token)
    }
}

/// Requests a token of a service account.
pub(crate) async fn mint(admin: &Endpoint, namespace: &str, name: &str) -> String {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let asked =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answer = admin.send(&Call::json(Method::POST, &path, &asked)).await.json();
    answer["status"]["token"].as_str().unwrap_or_else(|| panic!("no token: {answer}")).to_owned()
}

/// Waits until the upstream knows the roles; it learns them in order.
async fn granted(direct: &Side, tokens: &Tokens) {
    let calls = [
        ("nina", "/api/v1/namespaces/a/configmaps/x"),
        ("gus", "/api/v1/nodes/x"),
        ("tom", "/api/v1/pods"),
    ];
    for (name, path) in calls {
        let endpoint = direct.as_token(&tokens.token_of(name));
        eventually(&format!("{name} may get {path}"), async || {
            endpoint.send(&Call::get(path)).await.status == 200
        })
        .await;
    }
}

/// Weir's kubeconfig for the upstream.
fn kubeconfig(pki: &Pki, direct: &Side, token: &str) -> PathBuf {
    let ca = pki.write("upstream.crt", &direct.ca);
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: t\n\
         clusters: [{{name: t, cluster: {{server: \"https://{}\", certificate-authority: {}}}}}]\n\
         users: [{{name: t, user: {{token: {token}}}}}]\n\
         contexts: [{{name: t, context: {{cluster: t, user: t}}}}]\n",
        direct.address,
        ca.display()
    );
    pki.write("upstream.kubeconfig", &text)
}

fn config(pki: &Pki, port: u16, setting: Setting) -> String {
    let dir = pki.dir().display();
    let forwarded_identity = match setting.forwarded_identity {
        ForwardedIdentity::FrontProxy => {
            format!(
                "frontProxy: {{certificateFile: {dir}/proxy.crt, privateKeyFile: {dir}/proxy.key}}"
            )
        }
        ForwardedIdentity::Impersonation => "impersonate: true".to_owned(),
    };
    let cache_ttl = format!("{}ms", setting.cache_ttl.as_millis());
    let watch_recheck = format!("{}ms", setting.watch_recheck.as_millis());
    let more = setting.authorization;
    // A log of everything takes most of a busy CPU, and in the default mode Weir would then refuse
    // requests with 429 instead of the answers that are compared.
    let flow_control = if setting.log == "trace" { "flowControl: {mode: observe}\n" } else { "" };
    format!(
        "server:\n  connectionsPerAddressMax: 4096\n  listeners:\n  - listen: https://127.0.0.1:{port}\n    \
         certificate: {{certificateFile: {dir}/weir.crt, privateKeyFile: {dir}/weir.key}}\n\
         authentication:\n  mode: gateway\n  {forwarded_identity}\n  tokens: {{ttl: {cache_ttl}}}\n\
         authorization: {{allowTTL: {cache_ttl}, watchRecheck: {watch_recheck}{more}}}\n\
         audit: {{output: {dir}/{AUDIT}}}\n\
         cache: {{forwardBudget: 4096}}\n\
         {flow_control}"
    )
}

const AUDIT: &str = "audit.log";
