//! A plan with operators' levels and rules, and with the metrics of its FlowSchemas.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;

use crate::api::request_info::RequestInfo;
use crate::auth::user::User;
use crate::flow::plan::Plan;
use crate::flow::rules::{self, FlowBy, Rule, rank};
use crate::flow::work::{self, LIST_SEATS_MAX};
use crate::server::flow_control::metrics::{ClassMetrics, FlowMetrics, RuleMetrics};

#[derive(Debug)]
pub(super) struct ActivePlan {
    /// Different for each plan of this process.
    pub(super) number: u64,
    pub(super) plan: Plan,
    /// The classes of the plan's schemas, in the same order.
    pub(super) classes: Vec<Arc<Class>>,
    /// The class of requests whose user is unknown.
    pub(super) unidentified: Arc<Class>,
    /// The rules that give another level.
    level_rules: Vec<Arc<LevelRule>>,
}

/// The class of the requests of one FlowSchema, or of those to which a rule gives another level.
#[derive(Debug)]
pub(super) struct Class {
    /// The name of the schema or the rule; `None` for requests whose user is unknown.
    pub(super) schema: Option<Arc<str>>,
    pub(super) level: Arc<str>,
    /// The rank of the level: a lower one is better.
    pub(super) rank: u8,
    /// The uids of the schema and the level, as kube-apiserver's headers; none of what is built in.
    pub(super) uids: [Option<HeaderValue>; 2],
    /// The most seats of one list.
    pub(super) seats_max: u64,
    pub(super) metrics: ClassMetrics,
}

#[derive(Debug)]
struct LevelRule {
    rule: Rule,
    class: Arc<Class>,
    metrics: RuleMetrics,
}

/// The class of a request, and its flow in it; empty if the class is one flow.
#[derive(Debug)]
pub(crate) struct Placement {
    pub(super) class: Arc<Class>,
    pub(super) flow: Box<str>,
    /// The rule that gave the class, or would have, and what it did.
    effect: Option<(Arc<LevelRule>, &'static str, bool)>,
}

impl ActivePlan {
    pub(super) fn unidentified(&self) -> Placement {
        Placement { class: Arc::clone(&self.unidentified), flow: "".into(), effect: None }
    }

    /// Resolves the metrics of all schemas.
    pub(super) fn new(plan: Plan, rules: &[Rule], metrics: &FlowMetrics) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let class = |schema: &Arc<str>, level: &Arc<str>, uids| {
            Arc::new(Class {
                schema: Some(Arc::clone(schema)),
                level: Arc::clone(level),
                rank: rank(level),
                uids,
                seats_max: work::seats_max(&plan, level),
                metrics: metrics.class(schema, level),
            })
        };
        let classes = plan.schemas().iter().map(|schema| {
            let uids = [Some(&schema.uid), plan.level(schema).map(|level| &level.uid)].map(uid);
            class(&schema.name, &schema.level, uids)
        });
        let classes = classes.collect();
        let level_rules = rules.iter().filter_map(|rule| {
            let level = rule.level.as_ref()?;
            if plan.level_named(level).is_none() {
                let (rule, level) = (&*rule.name, &**level);
                tracing::warn!(rule, level, "a rule of flowControl.rules names no level");
                return None;
            }
            let class = class(&rule.name, level, [None, None]);
            let (rule, metrics) = (rule.clone(), metrics.rule(&rule.name));
            Some(Arc::new(LevelRule { rule, class, metrics }))
        });
        let level_rules = level_rules.collect();
        let unidentified = Arc::new(Class {
            schema: None,
            level: UNIDENTIFIED.into(),
            rank: u8::MAX,
            uids: [None, None],
            seats_max: LIST_SEATS_MAX,
            metrics: metrics.class(UNIDENTIFIED, UNIDENTIFIED),
        });
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { number, plan, classes, unidentified, level_rules }
    }

    /// Returns the labels of all classes: schema and level.
    pub(super) fn labels(&self) -> impl Iterator<Item = [&str; 2]> {
        let of_rules = self.level_rules.iter().map(|rule| &rule.class);
        self.classes
            .iter()
            .chain(of_rules)
            .chain([&self.unidentified])
            .map(|class| [class.schema.as_deref().unwrap_or(UNIDENTIFIED), &*class.level])
    }

    /// Returns the class of a known user's request, of which FlowSchemas have said `class`: that of
    /// the first rule with a level that matches. A rule that matches by user agent cannot give a
    /// better level, since the client chooses that.
    pub(super) fn place(
        &self,
        place: usize,
        user: &User,
        agent: &str,
        info: &RequestInfo,
    ) -> Placement {
        let class = self.classes.get(place).unwrap_or(&self.unidentified);
        let identity = Some((&*user.name, &*user.groups));
        let mut effect = None;
        for level_rule in &self.level_rules {
            let LevelRule { rule, class: other, .. } = &**level_rule;
            if !rule.matches(identity, agent, info) {
                continue;
            }
            let effect_of = |effect, is_enforced| (Arc::clone(level_rule), effect, is_enforced);
            if !rule.agents.is_empty() && other.rank < class.rank {
                effect = effect.or_else(|| Some(effect_of("better-level", false)));
                continue;
            }
            if rule.enforces {
                let flow = flow_by(rule.flow_by, user, agent, info).into();
                let effect = Some(effect_of("level", true));
                return Placement { class: Arc::clone(other), flow, effect };
            }
            effect = effect.or_else(|| Some(effect_of("level", false)));
        }
        let schema = self.plan.schemas().get(place);
        let flow = schema.map_or("", |schema| schema.flow(&user.name, info));
        Placement { class: Arc::clone(class), flow: flow.into(), effect }
    }
}

impl Placement {
    /// Counts the effect of a rule, once for a request.
    pub(super) fn count_effect(&self) {
        if let Some((level_rule, effect, is_enforced)) = &self.effect {
            level_rule.metrics.count(effect, *is_enforced);
        }
    }
}

fn flow_by<'a>(by: FlowBy, user: &'a User, agent: &'a str, info: &'a RequestInfo) -> Cow<'a, str> {
    let product = rules::product(agent);
    match by {
        FlowBy::User => (&*user.name).into(),
        FlowBy::Namespace => {
            info.resource.as_ref().map_or("", |resource| &*resource.namespace).into()
        }
        FlowBy::UserAgent => product.into(),
        FlowBy::UserAndAgent => format!("{} {product}", user.name).into(),
        FlowBy::Nothing => "".into(),
    }
}

fn uid(uid: Option<&Arc<str>>) -> Option<HeaderValue> {
    HeaderValue::from_str(uid.filter(|uid| !uid.is_empty())?).ok()
}

/// The labels of requests whose user is unknown.
pub(super) const UNIDENTIFIED: &str = "unidentified";
