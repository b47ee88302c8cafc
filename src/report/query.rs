//! Conditions on rows of results: `status == optimal and chips <= 512 and cost_usd < $10M`.
//!
//! A condition compares columns with numbers, texts or other columns by `==`, `!=`, `<`, `<=`, `>`, `>=` and `contains`, joined by `and`, `or`, `not` and
//! parentheses. Numbers may have the unit of their column, or `%` of a share; labels that are amounts (`4 MB`) are compared as amounts. A comparison
//! with an empty cell does not hold, but for `== ''`.

use super::columns::{KINDS, Kind, kind_of, kind_of_labels};
use super::table::{Table, TableError};
use std::fmt;

/// What is wrong with a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryError {
    text: String,
    /// Where, in characters from 0.
    pub at: usize,
    message: String,
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line: String = self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        write!(f, "character {}: {}\n  {line}\n  {}^", self.at + 1, self.message, " ".repeat(self.at))
    }
}

impl std::error::Error for QueryError {}

/// How two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Equal,
    Unequal,
    Below,
    AtMost,
    Above,
    AtLeast,
    Contains,
}

const SIGNS: [(&str, Sign); 8] = [
    ("==", Sign::Equal),
    ("!=", Sign::Unequal),
    ("<=", Sign::AtMost),
    (">=", Sign::AtLeast),
    ("<", Sign::Below),
    (">", Sign::Above),
    ("=", Sign::Equal),
    ("contains", Sign::Contains),
];

#[derive(Debug, Clone, PartialEq)]
enum Token {
    /// A name or a bare text.
    Word(String),
    /// A text between quotation marks.
    Quoted(String),
    /// A number, and its unit as it is written.
    Number {
        text: String,
        value: f64,
        unit: String,
    },
    Sign(Sign),
    And,
    Or,
    Not,
    Open,
    Close,
}

/// A column as the condition needs it.
#[derive(Debug, Clone)]
enum Cells {
    Numbers(Vec<f64>),
    Texts(Vec<String>),
}

#[derive(Debug, Clone)]
enum Operand {
    Column(Cells),
    Number(f64),
    Text(String),
}

#[derive(Debug, Clone)]
enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Compare(Operand, Sign, Operand),
}

/// A condition over the rows of one table.
#[derive(Debug, Clone)]
pub struct Query {
    root: Node,
    /// The columns it names, in their order.
    pub columns: Vec<String>,
}

impl Query {
    /// Reads a condition for a table.
    ///
    /// # Errors
    /// [`QueryError`] with the place: what is no condition, columns that are not there, units of another kind.
    pub fn parse(text: &str, table: &Table) -> Result<Self, QueryError> {
        let tokens = tokens(text)?;
        let mut parser = Parser { text, tokens, next: 0, table, columns: Vec::new(), depth: 0 };
        let root = parser.any()?;
        if let Some((at, token)) = parser.tokens.get(parser.next) {
            let message = format!("expected `and`, `or` or the end, found {}", told(token));
            return Err(parser.fail(*at, message));
        }
        Ok(Self { root, columns: parser.columns })
    }

    /// Whether it holds for a row.
    pub fn holds(&self, row: usize) -> bool {
        self.root.holds(row)
    }
}

/// Deepest parentheses.
const DEEPEST: usize = 100;

fn told(token: &Token) -> String {
    match token {
        Token::Word(text) | Token::Quoted(text) => format!("{text:?}"),
        Token::Number { text, .. } => text.clone(),
        Token::Sign(sign) => SIGNS.iter().find(|(_, s)| s == sign).map_or("", |(text, _)| text).to_string(),
        Token::And => "`and`".into(),
        Token::Or => "`or`".into(),
        Token::Not => "`not`".into(),
        Token::Open => "(".into(),
        Token::Close => ")".into(),
    }
}

/// The tokens, each with the character it begins at.
fn tokens(text: &str) -> Result<Vec<(usize, Token)>, QueryError> {
    let chars: Vec<char> = text.chars().collect();
    let fail = |at: usize, message: String| QueryError { text: text.to_string(), at, message };
    let mut found = Vec::new();
    let mut i = 0;
    let run = |from: usize, holds: &dyn Fn(char) -> bool| {
        chars.iter().skip(from).take_while(|c| holds(**c)).collect::<String>()
    };
    while let Some(c) = chars.get(i).copied() {
        let start = i;
        let rest = |sign: &str| sign.chars().enumerate().all(|(j, c)| chars.get(start + j) == Some(&c));
        if c.is_whitespace() {
            i += 1;
            continue;
        }
        let sign = SIGNS.iter().find(|(sign, _)| !sign.starts_with('c') && rest(sign));
        let token = if c == '(' || c == ')' {
            i += 1;
            if c == '(' { Token::Open } else { Token::Close }
        } else if let Some((text, sign)) = sign {
            i += text.len();
            Token::Sign(*sign)
        } else if c == '\'' || c == '"' {
            let inside = run(i + 1, &|d| d != c);
            i += inside.chars().count() + 1;
            if chars.get(i) != Some(&c) {
                return Err(fail(start, format!("the text has no {c} at its end")));
            }
            i += 1;
            Token::Quoted(inside)
        } else if c.is_ascii_digit() || "$.-".contains(c) {
            let dollars = c == '$';
            i += usize::from(dollars);
            let minus = if chars.get(i) == Some(&'-') { "-" } else { "" };
            i += minus.len();
            let mut digits = run(i, &|d| d.is_ascii_digit() || d == '.' || d == '_');
            i += digits.len();
            // An exponent: `e` with digits after it.
            let exponent: String = {
                let sign = usize::from(matches!(chars.get(i + 1), Some('+' | '-')));
                let power = run(i + 1 + sign, &|d| d.is_ascii_digit());
                let is = matches!(chars.get(i), Some('e' | 'E')) && !power.is_empty();
                if is { chars.iter().skip(i).take(1 + sign + power.len()).collect() } else { String::new() }
            };
            i += exponent.len();
            digits.push_str(&exponent);
            let value: f64 =
                format!("{minus}{}", digits.replace('_', "")).parse().ok().filter(|v: &f64| v.is_finite()).ok_or_else(
                    || {
                        fail(
                            start,
                            format!(
                                "expected a number, found {:?}",
                                chars.iter().skip(start).take(i.max(start + 1) - start).collect::<String>()
                            ),
                        )
                    },
                )?;
            let mut unit = String::new();
            let space = run(i, &|d| d == ' ').len();
            let letters = run(i + space, &|d| d.is_alphanumeric() || "%/$µ".contains(d));
            // `$2/(GB/s)`: what it is paid for may be a rate.
            if !letters.is_empty() && !["and", "or", "not", "contains"].contains(&letters.to_lowercase().as_str()) {
                i += space + letters.chars().count();
                unit = letters;
            }
            if dollars {
                unit = format!("${unit}");
            }
            Token::Number { text: chars.iter().skip(start).take(i - start).collect(), value, unit }
        } else if c.is_alphabetic() || c == '_' {
            let word = run(i, &|d| d.is_alphanumeric() || "_-./:".contains(d));
            i += word.chars().count();
            match word.to_lowercase().as_str() {
                "and" => Token::And,
                "or" => Token::Or,
                "not" => Token::Not,
                "contains" => Token::Sign(Sign::Contains),
                _ => Token::Word(word),
            }
        } else {
            return Err(fail(
                start,
                format!("{c:?} has no meaning here; texts with signs stand between quotation marks"),
            ));
        };
        found.push((start, token));
    }
    Ok(found)
}

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<(usize, Token)>,
    next: usize,
    table: &'t Table,
    columns: Vec<String>,
    depth: usize,
}

/// An operand before the other side is known.
enum Side {
    Column { name: String, at: usize },
    Text(String),
    Number { at: usize, value: f64, unit: String },
}

impl Parser<'_> {
    fn fail(&self, at: usize, message: impl Into<String>) -> QueryError {
        QueryError { text: self.text.to_string(), at, message: message.into() }
    }

    fn take(&mut self) -> Option<(usize, Token)> {
        let token = self.tokens.get(self.next).cloned();
        self.next += usize::from(token.is_some());
        token
    }

    fn is_next(&mut self, token: &Token) -> bool {
        let is = self.tokens.get(self.next).is_some_and(|(_, next)| next == token);
        self.next += usize::from(is);
        is
    }

    fn any(&mut self) -> Result<Node, QueryError> {
        let mut parts = vec![self.all()?];
        while self.is_next(&Token::Or) {
            parts.push(self.all()?);
        }
        Ok(Node::Any(parts))
    }

    fn all(&mut self) -> Result<Node, QueryError> {
        let mut parts = vec![self.one()?];
        while self.is_next(&Token::And) {
            parts.push(self.one()?);
        }
        Ok(Node::All(parts))
    }

    fn one(&mut self) -> Result<Node, QueryError> {
        let at = self.tokens.get(self.next).map_or(self.text.chars().count(), |(at, _)| *at);
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.fail(at, format!("more than {DEEPEST} parentheses and `not` within each other")));
        }
        let node = if self.is_next(&Token::Not) {
            Node::Not(Box::new(self.one()?))
        } else if self.is_next(&Token::Open) {
            let inside = self.any()?;
            if !self.is_next(&Token::Close) {
                return Err(self.fail(at, "this parenthesis is not closed"));
            }
            inside
        } else {
            self.compare()?
        };
        self.depth -= 1;
        Ok(node)
    }

    fn side(&mut self, is_left: bool) -> Result<Side, QueryError> {
        let end = self.text.chars().count();
        match self.take() {
            Some((at, Token::Number { value, unit, .. })) => Ok(Side::Number { at, value, unit }),
            Some((_, Token::Quoted(text))) => Ok(Side::Text(text)),
            // A word on the right that heads no column is a text.
            Some((at, Token::Word(name))) => match self.table.texts(&name) {
                Ok(_) => Ok(Side::Column { name, at }),
                Err(_) if !is_left => Ok(Side::Text(name)),
                Err(TableError::NoColumn { column, remedy, .. }) => {
                    Err(self.fail(at, format!("there is no column {column:?}; {remedy}")))
                }
                Err(other) => Err(self.fail(at, other.to_string())),
            },
            Some((at, token)) => {
                Err(self.fail(at, format!("expected a column, a number or a text, found {}", told(&token))))
            }
            None => Err(self.fail(end, "expected a column, a number or a text, found the end")),
        }
    }

    fn compare(&mut self) -> Result<Node, QueryError> {
        let left = self.side(true)?;
        let (at, sign) = match self.take() {
            Some((at, Token::Sign(sign))) => (at, sign),
            Some((at, token)) => {
                return Err(self.fail(at, format!("expected == != < <= > >= or contains, found {}", told(&token))));
            }
            None => {
                return Err(self.fail(self.text.chars().count(), "expected == != < <= > >= or contains, found the end"));
            }
        };
        let right = self.side(false)?;
        let as_text = matches!((&left, &right), (Side::Text(_), _) | (_, Side::Text(_))) || sign == Sign::Contains;
        let unit = match (&left, &right) {
            (Side::Number { unit, .. }, _) | (_, Side::Number { unit, .. }) => unit.clone(),
            _ => String::new(),
        };
        let (left, left_kind) = self.operand(left, as_text, !unit.is_empty())?;
        let (right, right_kind) = self.operand(right, as_text, !unit.is_empty())?;
        let texts = matches!(left, Operand::Text(_) | Operand::Column(Cells::Texts(_)))
            || matches!(right, Operand::Text(_) | Operand::Column(Cells::Texts(_)));
        if texts && !matches!(sign, Sign::Equal | Sign::Unequal | Sign::Contains) {
            return Err(self.fail(at, "texts are compared by ==, != and contains; numbers by < and >"));
        }
        if texts
            && [&left, &right]
                .iter()
                .any(|side| matches!(side, Operand::Number(_) | Operand::Column(Cells::Numbers(_))))
        {
            return Err(self.fail(at, "a text and a number cannot be compared; put the number between quotation marks"));
        }
        if let (Some(one), Some(other)) = (left_kind, right_kind)
            && one != other
        {
            return Err(self.fail(at, format!("{one} and {other} cannot be compared")));
        }
        Ok(Node::Compare(left, sign, right))
    }

    /// An operand, and what kind of amount it is where that is known.
    fn operand(
        &mut self,
        side: Side,
        as_text: bool,
        has_unit: bool,
    ) -> Result<(Operand, Option<&'static str>), QueryError> {
        Ok(match side {
            Side::Text(text) => (Operand::Text(text), None),
            Side::Number { at, value, unit } => {
                if as_text {
                    return Err(self.fail(at, "a number is compared with a text; put it between quotation marks"));
                }
                let (value, kind) = amount(value, &unit).map_err(|message| self.fail(at, message))?;
                (Operand::Number(value), kind)
            }
            Side::Column { name, at } => {
                let texts = self.table.texts(&name).map_err(|e| self.fail(at, e.to_string()))?;
                if !self.columns.contains(&name) {
                    self.columns.push(name.clone());
                }
                if as_text {
                    return Ok((Operand::Column(Cells::Texts(texts.into_iter().map(str::to_string).collect())), None));
                }
                let number = |text: &&str| if text.is_empty() { Some(f64::NAN) } else { text.parse::<f64>().ok() };
                if let Some(numbers) = texts.iter().map(number).collect::<Option<Vec<_>>>() {
                    let kind = kind_of(&name).map_or("a plain number", |kind| kind.name);
                    // What is as plain as a number may stand without a unit.
                    let kind = Some(kind).filter(|_| has_unit && numbers.iter().any(|v| v.is_finite()));
                    return Ok((Operand::Column(Cells::Numbers(numbers)), kind));
                }
                let amounts = kind_of_labels(texts.iter().copied().filter(|text| !text.is_empty()));
                match amounts {
                    Some(kind) => {
                        let numbers = texts.iter().map(|text| (kind.read)(text).unwrap_or(f64::NAN)).collect();
                        (Operand::Column(Cells::Numbers(numbers)), Some(kind.name))
                    }
                    None if has_unit => return Err(self.fail(at, format!("{name} holds texts, not amounts"))),
                    None => (Operand::Column(Cells::Texts(texts.into_iter().map(str::to_string).collect())), None),
                }
            }
        })
    }
}

/// A number with its unit in the base unit, and the kind of amount; shares and bare numbers are plain.
fn amount(value: f64, unit: &str) -> Result<(f64, Option<&'static str>), String> {
    let prefix = |sign: &str| match sign {
        "" => Some(1.0),
        "k" => Some(1e3),
        "M" => Some(1e6),
        "G" | "B" => Some(1e9),
        "T" => Some(1e12),
        _ => None,
    };
    if unit.is_empty() {
        return Ok((value, None));
    }
    if unit == "%" {
        return Ok((value / 100.0, Some("a plain number")));
    }
    if let Some(scale) = unit.strip_prefix('$').and_then(prefix) {
        let price = KINDS.iter().find(|kind| kind.unit == "usd").map(|kind| kind.name);
        return Ok((value * scale, price));
    }
    if let Some(scale) = prefix(unit).filter(|_| unit != "B") {
        return Ok((value * scale, Some("a plain number")));
    }
    let read = |kind: &Kind| (kind.read)(&format!("1 {unit}")).map(|scale| (value * scale, Some(kind.name)));
    KINDS.iter().find_map(read).ok_or_else(|| {
        format!("{unit:?} is no unit (B, B/s, FLOP/s, s, Hz, W and $ with prefixes, %); a text stands between quotation marks")
    })
}

impl Node {
    fn holds(&self, row: usize) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.holds(row)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(row)),
            Self::Not(part) => !part.holds(row),
            Self::Compare(left, sign, right) => match (left.number(row), right.number(row)) {
                (Some(a), Some(b)) => match sign {
                    _ if a.is_nan() || b.is_nan() => false,
                    Sign::Equal => a == b,
                    Sign::Unequal => a != b,
                    Sign::Below => a < b,
                    Sign::AtMost => a <= b,
                    Sign::Above => a > b,
                    Sign::AtLeast => a >= b,
                    Sign::Contains => false,
                },
                _ => {
                    let (a, b) = (left.text(row), right.text(row));
                    // Asked for emptiness, an empty cell answers.
                    let asked = [left, right].iter().any(|side| matches!(side, Operand::Text(text) if text.is_empty()));
                    match sign {
                        _ if !asked && (a.is_empty() || b.is_empty()) => false,
                        Sign::Equal => a == b,
                        Sign::Unequal => a != b,
                        Sign::Contains => a.contains(b),
                        _ => false,
                    }
                }
            },
        }
    }
}

impl Operand {
    fn number(&self, row: usize) -> Option<f64> {
        match self {
            Self::Column(Cells::Numbers(numbers)) => Some(numbers.get(row).copied().unwrap_or(f64::NAN)),
            Self::Number(value) => Some(*value),
            Self::Column(Cells::Texts(_)) | Self::Text(_) => None,
        }
    }

    fn text(&self, row: usize) -> &str {
        match self {
            Self::Column(Cells::Texts(texts)) => texts.get(row).map_or("", String::as_str),
            Self::Text(text) => text,
            Self::Column(Cells::Numbers(_)) | Self::Number(_) => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let path = std::env::temp_dir().join(format!(
            "flowspace-query-{}-{:?}.csv",
            std::process::id(),
            std::thread::current().id()
        ));
        let text = "point,sram,chip,status,power_w,utilization,samples_per_s,reason\n\
                    0,4 MB,h100,optimal,2000000,0.5,10,\n1,1 GiB,sn30,infeasible,,,,\"short of SRAM\"\n2,512 KiB,torus-2d,optimal,2500000,0.7,20,\n";
        std::fs::write(&path, text).unwrap();
        let table = Table::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        table
    }

    fn rows(text: &str) -> Vec<usize> {
        let table = table();
        let query = Query::parse(text, &table).unwrap_or_else(|e| panic!("{text}: {e}"));
        (0..table.len()).filter(|row| query.holds(*row)).collect()
    }

    #[test]
    fn conditions_choose_rows() {
        for (text, expected) in [
            ("status == optimal", vec![0, 2]),
            ("status==optimal and power_w <= 2 MW", vec![0]),
            ("power_w > 2.1e6", vec![2]),
            ("power_w != 2 MW", vec![2]),
            ("utilization >= 60 %", vec![2]),
            ("utilization >= 0.6 or point == 1", vec![1, 2]),
            ("sram >= 4 MB", vec![0, 1]),
            ("sram < 1e6 B", vec![2]),
            ("not (chip == sn30)", vec![0, 2]),
            ("not status == optimal", vec![1]),
            ("chip == torus-2d or chip = 'h100'", vec![0, 2]),
            ("reason contains SRAM", vec![1]),
            ("power_w == ''", vec![1]),
            ("reason != \"\"", vec![1]),
            ("samples_per_s > 5 and samples_per_s < 0.02 k", vec![0]),
            ("power_w > point", vec![0, 2]),
            ("(((status == optimal))) AND NOT point == 0", vec![2]),
            ("-1 < point", vec![0, 1, 2]),
        ] {
            assert_eq!(rows(text), expected, "{text}");
        }
        assert_eq!(amount(10.0, "$M").unwrap(), (1e7, Some("a price")));
        assert_eq!(amount(2.0, "ms").unwrap().0, 2e-3);
    }

    #[test]
    fn errors_name_the_place() {
        let table = table();
        for (text, at, part) in [
            ("stats == optimal", 0, "did you mean \"status\""),
            ("status == optimal nad point > 1", 18, "expected `and`"),
            ("power_w <= 2 GB", 8, "a power and a size cannot be compared"),
            ("samples_per_s <= 2 ms", 14, "a plain number and a time"),
            ("status < 3", 7, "texts are compared by"),
            ("status > 3 W", 0, "holds texts"),
            ("power_w <= 2 parsec", 11, "is no unit"),
            ("(status == optimal", 0, "is not closed"),
            ("status ==", 9, "found the end"),
            ("status", 6, "found the end"),
            ("", 0, "found the end"),
            ("status == 'opt", 10, "no ' at its end"),
            ("power_w < 1.2.3", 10, "expected a number"),
            ("status == optimal && point", 18, "has no meaning"),
            ("chip == 7", 5, "quotation marks"),
            ("status == optimal)", 17, "expected `and`"),
        ] {
            let error = Query::parse(text, &table).map(|_| text).unwrap_err();
            assert!(error.to_string().contains(part), "{text}: {error}");
            assert_eq!(error.at, at, "{text}: {error}");
        }
        let deep = "(".repeat(5000);
        assert!(Query::parse(&deep, &table).unwrap_err().to_string().contains("within each other"));
    }
}
