// The rule for statements about records, which a cluster that keeps datasets on several machines can run: each names the
// dataset in every relation, so that one machine runs it alone.
//
// Every statement that the service sends in a test is judged. Statements of the tests themselves are not.

import { join } from 'node:path';
import pg from 'pg';
import { onEachStatement } from './recorder.ts';

const tables = 'dataset|record|payload|prune|tracked|consumer|dataset_outbox';
const mention = new RegExp(`\\b(${tables})\\b`);

/** Statements that may break the rule, by a part of their text, and why. */
export const allowed: Record<string, string> = {
  'from dataset where connection = $1 and variant = $2 and tracking_id':
    'finds datasets by the names of their models',
  'from dataset where connection = $1 order by model': 'lists the datasets of a connection',
  'from dataset where connection = any($1) order by connection, model':
    'lists the datasets of a page of connections',
  'behind from consumer where dataset_id = any($1)': 'lists the consumers of a page of connections',
  'from dataset cross join lateral ( select * from consumer': 'lists the consumers of a connection',
  'records from dataset where connection = any($1)': 'counts the records of the syncs of a page',
  'from dataset where connection = any($1) and held_count': 'lists the held deletions of the syncs of a page',
  'join dataset on dataset.id = kept.id': 'finds the datasets that a policy concerns, each minute',
  'greatest(acknowledged_at, silent_from) end < $1': 'finds silent consumers, each minute',
  'from dataset where has_leftovers': 'finds the datasets that were emptied, each minute',
  'from dataset where closed': 'finds the datasets of deleted connections, each minute',
  'from dataset_outbox where written_at <': 'finds entries that wait for long, for an operator',
  'consumer.held_since limit 0': 'finds stalled consumers, for an operator',
  'update dataset set last_seq = last_seq + $1': 'raises all positions, for an operator',
  'as datasets from dataset': 'counts all datasets, for an operator',
  'sum(last_seq)': 'adds up all positions, for an operator',
  'from dataset_outbox where sequence =':
    'copies audit entries and events of all datasets, ten times a second',
  'hashtextextended(one::text': 'compares whole tables with a backup, for an operator',
};

/** Of a backup, which reads whole tables. */
const wholeTable = /^copy \(select [\w, ]+ from \w+\) to stdout/;

/** A part of a statement: the text of one query with `()` in place of the queries in it. */
type Query = { text: string; isInner: boolean };

function queriesOf(statement: string): Query[] {
  const found: Query[] = [];
  const open: { text: string }[] = [{ text: '' }];
  for (const part of statement.split(/([()])/)) {
    const at = open.at(-1)!;
    if (part === '(') open.push({ text: '' });
    else if (part === ')' && open.length > 1) {
      const { text } = open.pop()!;
      const isQuery = /^\s*(select|with|insert|update|delete)\b/.test(text);
      if (isQuery) found.push({ text, isInner: true });
      open.at(-1)!.text += isQuery ? '()' : `(${text})`;
    } else at.text += part;
  }
  found.push({ text: open[0]!.text, isInner: false });
  return found.flatMap(({ text, isInner }) =>
    text.split(/\bunion(?: all)?\b/).map((text) => ({ text: text.trim(), isInner })),
  );
}

const constant = String.raw`(?:\$\d+|-?\d+)(?:::[a-z ]+)?(?![\w.])`;

function faultsOfQuery({ text, isInner }: Query): string[] {
  const faults: string[] = [];
  const [, conditions = ''] = /^.*?\b(?:where|on)\b(.*)$/.exec(text) ?? [];
  const relations = [
    ...text.matchAll(
      new RegExp(`(?:\\b(?:from|join|update|using)|,) (?:only )?(${tables})\\b(?![.(])(?: as (\\w+))?`, 'g'),
    ),
  ].map(([, table, alias]) => ({ table: table!, name: alias ?? table! }));
  // A condition without the relation's name is for one relation.
  let unnamed = (key: string) =>
    [...conditions.matchAll(new RegExp(`(?<![\\w.])${key} = ${constant}`, 'g'))].length;
  for (const { table, name } of relations) {
    const key = table === 'dataset' ? 'id' : 'dataset_id';
    if (new RegExp(`\\b${name}\\.${key} = ${constant}`).test(conditions)) continue;
    const before = unnamed;
    if (before(key) > 0) {
      unnamed = (other) => before(other) - (other === key ? 1 : 0);
      continue;
    }
    faults.push(`"${name}" is without the dataset's id`);
  }
  const [, into, rest = ''] = new RegExp(`\\binsert into (${tables})\\b(.*)`).exec(text) ?? [];
  if (into !== undefined) {
    if (isInner) faults.push(`the insert into "${into}" is inside another statement`);
    if (
      !/^ \((?:dataset_)?id\b[^)]*\) (?:overriding system value )?(?:values \( ?|select )(?:\$1|0)(?!\w)/.test(
        rest,
      )
    )
      faults.push(`the row for "${into}" does not begin with the dataset's id`);
  }
  const changed = new RegExp(`\\b(?:update|delete from) (${tables})\\b`).exec(text)?.[1];
  const clock = /\b(?:\w+_timestamp|now|random|gen_random_uuid|nextval)\(|\binterval '/.exec(text)?.[0];
  if (changed !== undefined && clock !== undefined) faults.push(`the change of "${changed}" calls ${clock}`);
  const local = /\b(?:join|from) (connection|integration|environment|sync|function_\w+)\b(?![.(])/.exec(
    text,
  )?.[1];
  if (local !== undefined && relations.length > 0) faults.push(`"${local}" is joined with records`);
  return faults;
}

/** What is wrong with a statement, or with several that are sent together; empty if all are allowed. */
export function portabilityFaults(statement: string): string[] {
  return normal(statement)
    .split(/; ?/)
    .flatMap((text) => faultsOfStatement(text));
}

function faultsOfStatement(text: string): string[] {
  if (!mention.test(text) || /^(begin|commit|rollback|copy \w+ \(dataset_id\b)/.test(text)) return [];
  if (!/^(select|with|insert|update|delete|copy)\b/.test(text)) return [];
  if (wholeTable.test(text)) return [];
  if (Object.keys(allowed).some((part) => text.includes(part))) return [];
  return queriesOf(text).flatMap(faultsOfQuery);
}

/** Without comments, texts, quotes and line breaks, and with the same number for each number. */
export function normal(statement: string): string {
  return statement
    .replace(/--.*$/gm, '')
    .replace(/'[^']*'/g, "''")
    .replace(/(?<![$\w])\d+/g, '0')
    .replaceAll('"', '')
    .replace(/\s+/g, ' ')
    .trim();
}

const root = join(import.meta.dirname, '../..');

/** Whether a test has sent the statement: the function nearest to the database is one of a test. */
function isOfTest(): boolean {
  const frames = new Error().stack?.split('\n') ?? [];
  const nearest = frames.find(
    (frame) =>
      frame.includes(root) &&
      !/\/node_modules\/|\/server\/db\/(?!.*\.test\.ts)|support\/(?:recorder|portable-statements)\.ts/.test(
        frame,
      ),
  );
  return /^[^:]*(?:\.test\.ts|\.fixture\.ts)|^\/(?:test|bench)\//.test(nearest?.split(root)[1] ?? '');
}

const judged = new Map<string, string[]>();
const found = new Set<string>();

function judge(statement: string): string[] {
  const text = normal(statement);
  const known = judged.get(text);
  if (known !== undefined) return known;
  const faults = portabilityFaults(statement);
  judged.set(text, faults);
  return faults;
}

/** The statements about records that were judged, as `normal` writes them. */
export function judgedStatements(): string[] {
  return [...judged.keys()].filter((text) => mention.test(text));
}

/** Returns what was found since the last call. */
export function takePortabilityFaults(): string[] {
  const taken = [...found];
  found.clear();
  return taken;
}

/** Judges the statements of this process from now on. */
export function watchPortability(): void {
  const own = new WeakSet<object>();
  // A statement of the pool is sent later, when its caller is not on the stack.
  const { prototype } = pg.Pool as unknown as { prototype: { query(...args: unknown[]): unknown } };
  const { query } = prototype;
  prototype.query = function (this: object, ...args: unknown[]) {
    const [asked] = args as [{ text?: string }];
    const { text = '' } = asked;
    if (mention.test(text) && judge(text).length > 0 && isOfTest()) own.add(asked);
    return query.apply(this, args);
  };
  onEachStatement(({ asked, text }) => {
    if (!mention.test(text)) return;
    const faults = judge(text);
    if (faults.length === 0 || own.has(asked as object) || isOfTest()) return;
    found.add(`${faults.join('; ')}: ${normal(text)}`);
  });
}
