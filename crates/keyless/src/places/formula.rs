//! Which nodes satisfy a policy: boolean formulas over attributes.
//!
//! `country: JP or (not region: EU)`. `not` binds tightest, then `and`, then `or`. `not x: v` wants the attribute `x`
//! present with ANOTHER value, so a node of which nothing is known satisfies nothing; the same holds where `not` stands
//! before parentheses, which is read as De Morgan says: `not (a: 1 and b: 2)` is `not a: 1 or not b: 2`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::attributes::{Attributes, BadAttribute, check};

/// Bytes of a formula's text, as it came and as it is written again.
pub const TEXT_MAX: usize = 4 * 1_024;
/// Conditions (`name: value`) of a formula.
pub const ATOMS_MAX: usize = 256;
/// Parentheses and `not`s within each other.
pub const DEPTH_MAX: usize = 32;

/// Why a text is no formula, and where.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("column {column}: {trouble}")]
pub struct FormulaError {
    /// The character, from 1.
    pub column: usize,
    /// The error.
    pub trouble: Trouble,
}

/// An error in a formula.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Trouble {
    /// A condition should begin.
    #[error("expected `name: value`, `not` or `(`, found {0}")]
    NoCondition(Token),
    /// A name without its value.
    #[error("expected `:` and a value after {0:?}")]
    NoColon(String),
    /// A name and a colon without a value.
    #[error("expected a value after `{0}:`, found {1}")]
    NoValue(String, Token),
    /// Not a name, or not a value.
    #[error(transparent)]
    Attribute(#[from] BadAttribute),
    /// Something after the end.
    #[error("expected `and`, `or` or the end, found {0}")]
    Stray(Token),
    /// A parenthesis is not closed.
    #[error("expected `and`, `or` or the `)` of the `(` in column {opened}, found {found}")]
    Unclosed {
        /// Position of the opening parenthesis.
        opened: usize,
        /// The token found instead.
        found: Token,
    },
    /// Too much nesting.
    #[error("more than {DEPTH_MAX} nested parentheses and `not`s")]
    TooDeep,
    /// Too many conditions.
    #[error("more than {ATOMS_MAX} conditions")]
    TooMany,
    /// Too much text.
    #[error("the formula, or its normal form, is longer than {TEXT_MAX} bytes")]
    TooLong,
}

/// A token of a formula.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Token {
    /// A word.
    Word(String),
    /// Another character.
    Character(char),
    /// The end.
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => write!(f, "{word:?}"),
            Self::Character(character) => write!(f, "{character:?}"),
            Self::End => f.write_str("the end"),
        }
    }
}

/// A formula, as it was written but for spaces and parentheses that change nothing. Equal when written alike; to know
/// whether two mean the same by the rules of [`Self::canonical`], compare those. JSON has its text.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Formula(Node);

#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Node {
    Atom {
        name: String,
        value: String,
    },
    Not(Box<Node>),
    /// Two or more.
    And(Vec<Node>),
    /// Two or more.
    Or(Vec<Node>),
}

impl Formula {
    /// Reads a formula. Words (`and`, `or`, `not`) may be in capitals.
    ///
    /// # Errors
    /// [`FormulaError`]
    pub fn parse(text: &str) -> Result<Self, FormulaError> {
        if text.len() > TEXT_MAX {
            return Err(FormulaError { column: 1, trouble: Trouble::TooLong });
        }
        let mut parser = Parser { text, at: 0, atoms: 0 };
        let node = parser.or(0)?;
        parser.space();
        if parser.at < text.len() {
            return Err(parser.error_here(Trouble::Stray(parser.found())));
        }
        let formula = Self(node);
        // Spaces and the `not`s of the normal form: what is written is read again.
        if formula.to_string().len() > TEXT_MAX || formula.canonical().to_string().len() > TEXT_MAX {
            return Err(FormulaError { column: 1, trouble: Trouble::TooLong });
        }
        Ok(formula)
    }

    /// Whether a node with these attributes satisfies it.
    #[must_use]
    pub fn satisfied_by(&self, attributes: &Attributes) -> bool {
        self.0.holds(attributes, false)
    }

    /// The same in one form: `not` before conditions only (negation normal form), `and` within `and` and `or` within
    /// `or` made one, sorted, no part twice. Satisfied by the same nodes.
    #[must_use]
    pub fn canonical(&self) -> Self {
        Self(self.0.normal(false))
    }

    /// Its conditions, name and value, in the order they are written.
    #[must_use]
    pub fn atoms(&self) -> Vec<(&str, &str)> {
        let mut all = Vec::new();
        self.0.atoms(&mut all);
        all
    }
}

impl Node {
    fn holds(&self, attributes: &Attributes, negated: bool) -> bool {
        match self {
            Self::Atom { name, value } => {
                attributes.get(name).is_some_and(|found| (found == value) != negated)
            }
            Self::Not(node) => node.holds(attributes, !negated),
            // De Morgan: a negated `and` is an `or` of what is negated, and the other way round.
            Self::And(nodes) | Self::Or(nodes) if matches!(self, Self::And(_)) != negated => {
                nodes.iter().all(|node| node.holds(attributes, negated))
            }
            Self::And(nodes) | Self::Or(nodes) => nodes.iter().any(|node| node.holds(attributes, negated)),
        }
    }

    fn normal(&self, negated: bool) -> Self {
        match self {
            Self::Atom { .. } if negated => Self::Not(Box::new(self.clone())),
            Self::Atom { .. } => self.clone(),
            Self::Not(node) => node.normal(!negated),
            Self::And(nodes) | Self::Or(nodes) => {
                let is_and = matches!(self, Self::And(_)) != negated;
                let mut parts = Vec::with_capacity(nodes.len());
                for node in nodes {
                    match node.normal(negated) {
                        Self::And(inner) if is_and => parts.extend(inner),
                        Self::Or(inner) if !is_and => parts.extend(inner),
                        other => parts.push(other),
                    }
                }
                parts.sort();
                parts.dedup();
                join(parts, if is_and { Self::And } else { Self::Or })
            }
        }
    }

    fn atoms<'a>(&'a self, all: &mut Vec<(&'a str, &'a str)>) {
        match self {
            Self::Atom { name, value } => all.push((name, value)),
            Self::Not(node) => node.atoms(all),
            Self::And(nodes) | Self::Or(nodes) => nodes.iter().for_each(|node| node.atoms(all)),
        }
    }

    /// Parts of `and` and `or`, and what `not` stands before, are in parentheses when they are an `and` or `or`
    /// themselves; only `and` within `or` needs none.
    fn write_part(&self, within_or: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Or(_) => write!(f, "({self})"),
            Self::And(_) if !within_or => write!(f, "({self})"),
            _ => write!(f, "{self}"),
        }
    }
}

/// One alone is itself.
fn join(mut parts: Vec<Node>, all: fn(Vec<Node>) -> Node) -> Node {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            parts.extend(last);
            all(parts)
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nodes, word, is_or) = match self {
            Self::Atom { name, value } => return write!(f, "{name}: {value}"),
            Self::Not(node) => {
                f.write_str("not ")?;
                return node.write_part(false, f);
            }
            Self::And(nodes) => (nodes, " and ", false),
            Self::Or(nodes) => (nodes, " or ", true),
        };
        for (at, node) in nodes.iter().enumerate() {
            if at > 0 {
                f.write_str(word)?;
            }
            node.write_part(is_or, f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Formula {
    type Err = FormulaError;

    fn from_str(text: &str) -> Result<Self, FormulaError> {
        Self::parse(text)
    }
}

impl Serialize for Formula {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Formula {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Reads from the left, a function for each strength of binding.
struct Parser<'a> {
    text: &'a str,
    at: usize,
    atoms: usize,
}

impl<'a> Parser<'a> {
    fn or(&mut self, depth: usize) -> Result<Node, FormulaError> {
        let mut parts = vec![self.and(depth)?];
        while self.take_keyword("or") {
            parts.push(self.and(depth)?);
        }
        Ok(join(parts, Node::Or))
    }

    fn and(&mut self, depth: usize) -> Result<Node, FormulaError> {
        let mut parts = vec![self.unary(depth)?];
        while self.take_keyword("and") {
            parts.push(self.unary(depth)?);
        }
        Ok(join(parts, Node::And))
    }

    fn unary(&mut self, depth: usize) -> Result<Node, FormulaError> {
        self.space();
        let opened = self.at;
        let is_not = self.take_keyword("not");
        if !is_not && !self.take('(') {
            return self.atom();
        }
        if depth == DEPTH_MAX {
            return Err(self.error(opened, Trouble::TooDeep));
        }
        if is_not {
            return Ok(Node::Not(Box::new(self.unary(depth + 1)?)));
        }
        let node = self.or(depth + 1)?;
        self.space();
        if !self.take(')') {
            let trouble = Trouble::Unclosed { opened: self.column(opened), found: self.found() };
            return Err(self.error_here(trouble));
        }
        Ok(node)
    }

    fn atom(&mut self) -> Result<Node, FormulaError> {
        let (name_at, name) = (self.at, self.word());
        if name.is_empty() || is_keyword(name) {
            self.at = name_at;
            return Err(self.error_here(Trouble::NoCondition(self.found())));
        }
        self.at += name.len();
        self.space();
        if !self.take(':') {
            return Err(self.error_here(Trouble::NoColon(name.to_owned())));
        }
        self.space();
        let (value_at, value) = (self.at, self.word());
        if value.is_empty() {
            return Err(self.error_here(Trouble::NoValue(name.to_owned(), self.found())));
        }
        self.at += value.len();
        check(name, value).map_err(|bad| {
            let at = if matches!(bad, BadAttribute::Value { .. }) { value_at } else { name_at };
            self.error(at, bad.into())
        })?;
        self.atoms += 1;
        if self.atoms > ATOMS_MAX {
            return Err(self.error(name_at, Trouble::TooMany));
        }
        Ok(Node::Atom { name: name.to_owned(), value: value.to_owned() })
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// The text up to a space or an operator. Checked later, so that an error shows the whole word.
    fn word(&self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| c.is_whitespace() || matches!(c, ':' | '(' | ')'));
        &rest[..end.unwrap_or(rest.len())]
    }

    fn take(&mut self, sign: char) -> bool {
        let is_next = self.rest().starts_with(sign);
        self.at += if is_next { sign.len_utf8() } else { 0 };
        is_next
    }

    fn take_keyword(&mut self, keyword: &str) -> bool {
        self.space();
        let is_next = self.word().eq_ignore_ascii_case(keyword);
        self.at += if is_next { keyword.len() } else { 0 };
        is_next
    }

    fn found(&self) -> Token {
        match (self.word(), self.rest().chars().next()) {
            (_, None) => Token::End,
            ("", Some(character)) => Token::Character(character),
            (word, _) => Token::Word(word.to_owned()),
        }
    }

    fn column(&self, at: usize) -> usize {
        self.text.get(..at).map_or(0, |before| before.chars().count()) + 1
    }

    fn error(&self, at: usize, trouble: Trouble) -> FormulaError {
        FormulaError { column: self.column(at), trouble }
    }

    fn error_here(&self, trouble: Trouble) -> FormulaError {
        self.error(self.at, trouble)
    }
}

fn is_keyword(word: &str) -> bool {
    ["and", "or", "not"].iter().any(|keyword| word.eq_ignore_ascii_case(keyword))
}
