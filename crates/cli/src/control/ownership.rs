//! Owners, and the rules that say who answers for what scans found.

use api::ownership::{
    AssignBody, ExplanationView, FromTagsBody, QuestionBody, RuleBody, RuleView, StepView, WhenBody,
};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;

use super::document::DocumentCommand;
use super::job::OwnerDocument;
use super::{Run, input};
use crate::columns;
use crate::connection::{Client, Columns, DocumentRow, Listing, Output, document_of, read_as, show_one};
use crate::exit::{Outcome, Problem};
use crate::format::Format;
use crate::printer::Printer;

const PATH: &str = "/api/v1/ownership-rules";

/// What to do with owners.
#[derive(Debug, Subcommand)]
pub enum OwnerCommand {
    #[command(flatten)]
    Document(DocumentCommand<OwnerDocument>),
    /// Rules that say who answers for what scans found; the first that matches wins
    #[command(subcommand)]
    Rule(RuleCommand),
}

/// Rules of ownership.
#[derive(Debug, Subcommand)]
pub enum RuleCommand {
    /// Make one; without conditions it holds for everything that no rule before it takes
    Add(Box<NewRule>),
    /// List them, in their order
    List(Listing),
    /// Show one
    Show {
        /// Its name or id
        name: String,
        #[command(flatten)]
        show: Output,
    },
    /// Put one elsewhere among the others
    Move {
        /// Its name or id
        name: String,
        /// Where: rules are tried from the lowest position to the highest
        position: u32,
        #[command(flatten)]
        show: Output,
    },
    /// Remove one; what was claimed by it stays as it is
    Remove {
        /// Its name or id
        name: String,
    },
    /// Say whose something is: which rule matches, and why those before it do not
    Explain(Question),
}

/// A rule to make.
#[derive(Args, Debug)]
pub struct NewRule {
    /// Its name
    name: String,
    /// Where it stands: rules are tried from the lowest position to the highest [default: ten after the last]
    #[arg(long, value_name = "POSITION")]
    position: Option<u32>,
    /// What the host or the server name is like: '*.pay.example'; * is any run of characters
    #[arg(long, value_name = "PATTERN", help_heading = "Conditions (all that are given must hold)")]
    host: Option<String>,
    /// What one of the certificate's names is like
    #[arg(long, value_name = "PATTERN", help_heading = "Conditions (all that are given must hold)")]
    san: Option<String>,
    /// The network that the address is in, or the address
    #[arg(long, value_name = "NETWORK", help_heading = "Conditions (all that are given must hold)")]
    network: Option<String>,
    /// What the protocol (tls, smtp, aws-acm) or the watch's group is like
    #[arg(long, value_name = "PATTERN", help_heading = "Conditions (all that are given must hold)")]
    source: Option<String>,
    /// What the issuer's name holds
    #[arg(long, value_name = "TEXT", help_heading = "Conditions (all that are given must hold)")]
    issuer: Option<String>,
    /// A tag that a cloud or cluster gives to the certificate: KEY, or KEY=PATTERN for its value
    #[arg(long, value_name = "KEY[=PATTERN]", help_heading = "Conditions (all that are given must hold)")]
    cloud_tag: Option<String>,
    /// The team that answers
    #[arg(long, value_name = "TEAM", help_heading = "Whom it names (at least one of these)")]
    team: Option<String>,
    /// Who does
    #[arg(long, value_name = "OWNER", help_heading = "Whom it names (at least one of these)")]
    owner: Option<String>,
    /// Where it is used
    #[arg(long, value_name = "ENVIRONMENT", help_heading = "Whom it names (at least one of these)")]
    environment: Option<String>,
    /// Labels; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = input::pair,
        help_heading = "Whom it names (at least one of these)")]
    tag: Vec<(String, String)>,
    /// Take the team from the value of this tag; the rule holds only where it finds something to take
    #[arg(long, value_name = "KEY", help_heading = "Whom it names (at least one of these)")]
    team_from_tag: Option<String>,
    /// Take the owner from the value of this tag
    #[arg(long, value_name = "KEY", help_heading = "Whom it names (at least one of these)")]
    owner_from_tag: Option<String>,
    /// Take the environment from the value of this tag
    #[arg(long, value_name = "KEY", help_heading = "Whom it names (at least one of these)")]
    environment_from_tag: Option<String>,
    #[command(flatten)]
    show: Output,
}

impl NewRule {
    fn request(&self) -> RuleBody {
        RuleBody {
            name: self.name.clone(),
            position: self.position,
            when: WhenBody {
                host: self.host.clone(),
                name: self.san.clone(),
                network: self.network.clone(),
                source: self.source.clone(),
                issuer: self.issuer.clone(),
                tag: self.cloud_tag.clone(),
            },
            assign: AssignBody {
                team: self.team.clone(),
                owner: self.owner.clone(),
                environment: self.environment.clone(),
                tags: self.tag.iter().cloned().collect(),
            },
            from_tags: FromTagsBody {
                team: self.team_from_tag.clone(),
                owner: self.owner_from_tag.clone(),
                environment: self.environment_from_tag.clone(),
            },
        }
    }
}

/// Something that was found, or might be; what is not given is not known.
#[derive(Args, Debug)]
pub struct Question {
    /// Name, address or path
    host: String,
    /// The name asked for
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// The address; HOST when that is one
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// The certificate's names
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    san: Vec<String>,
    /// Who issued it
    #[arg(long, value_name = "TEXT", default_value = "")]
    issuer: String,
    /// What is spoken, or where it is kept: tls, smtp, aws-acm
    #[arg(long, value_name = "SOURCE", default_value = "tls")]
    source: String,
    /// The group of the watch that looks there
    #[arg(long, value_name = "GROUP", default_value = "")]
    group: String,
    /// A tag that a cloud or cluster gives to the certificate; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = input::pair)]
    cloud_tag: Vec<(String, String)>,
    #[command(flatten)]
    show: Output,
}

impl Question {
    async fn ask(&self, client: &Client) -> Outcome<()> {
        let question = QuestionBody {
            host: self.host.clone(),
            server_name: self.sni.clone().unwrap_or_default(),
            address: self.address.clone(),
            names: self.san.clone(),
            issuer: self.issuer.clone(),
            source: self.source.clone(),
            group: self.group.clone(),
            tags: self.cloud_tag.iter().cloned().collect(),
        };
        let answer = client.submit(Method::POST, &format!("{PATH}/explain"), &question).await?;
        if self.show.output == Format::Table { self.table(&answer) } else { show_one(&answer, &self.show) }
    }

    /// The rules one below the other, then what the last of them says.
    fn table(&self, answer: &Value) -> Outcome<()> {
        const STEPS: Columns = columns!(StepView: ("Position", position), ("Rule", rule), ("Matches", matches), ("Why not", why_not));
        let ExplanationView { steps, assign, .. } = read_as(answer)?;
        let steps = steps.iter().map(|step| document_of(step).map(DocumentRow::of));
        let steps = steps.collect::<Outcome<Vec<_>>>()?;
        let mut printer = Printer::new(self.show.output, self.show.color)?;
        printer.documents(&steps, STEPS).map_err(|error| Problem::output(&error))?;
        printer.end(None).map_err(|error| Problem::output(&error))?;
        assign.map_or(Ok(()), |assign| show_one(&document_of(&assign)?, &self.show))
    }
}

impl Run for OwnerCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        match self {
            Self::Document(command) => command.run(client).await,
            Self::Rule(command) => command.run(client).await,
        }
    }
}

impl Run for RuleCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const RULES: Columns = columns!(
            RuleView:
            ("Position", position),
            ("Name", name),
            ("When", when),
            ("Team", assign.team),
            ("Owner", assign.owner),
            ("Environment", assign.environment),
            ("Tags", assign.tags),
            ("From tags", from_tags),
        );
        let one = |name: &str| format!("{PATH}/{}", input::segment(name));
        match self {
            Self::Add(new) => show_one(&client.submit(Method::POST, PATH, &new.request()).await?, &new.show),
            Self::List(listing) => listing.print(client, PATH, &(), RULES).await,
            Self::Show { name, show } => show_one(&client.get(&one(name), &()).await?, show),
            Self::Move { name, position, show } => {
                let rule: RuleView = client.fetch(&one(name), &()).await?;
                let body = RuleBody {
                    name: rule.name,
                    position: Some(*position),
                    when: rule.when,
                    assign: rule.assign,
                    from_tags: rule.from_tags,
                };
                show_one(&client.submit(Method::PUT, &one(name), &body).await?, show)
            }
            Self::Remove { name } => client.send(Method::DELETE, &one(name), None).await.map(drop),
            Self::Explain(question) => question.ask(client).await,
        }
    }
}
