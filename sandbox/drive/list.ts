/** files.list: filter (`q`), order and pages. */
import { invalidParameter, notImplemented } from './errors.ts';
import { rootOf } from './metadata.ts';
import type { DriveFile } from './store.ts';

/**
 * One page of `files`. A page token is the ID of the last file of the page, so no file is listed twice after a creation. A
 * token of a deleted file is refused, like an expired token at Google.
 */
export function listPage(
  files: readonly DriveFile[],
  query: URLSearchParams,
): { files: DriveFile[]; nextPageToken: string | undefined } {
  const spaces = query.get('spaces') ?? 'drive';
  if (spaces !== 'drive') throw notImplemented(`spaces=${spaces}`);
  const corpora = query.get('corpora') ?? 'user';
  if (corpora !== 'user' && corpora !== 'allDrives') throw notImplemented(`corpora=${corpora}`);
  const pageSize = Number(query.get('pageSize') ?? 100);
  if (!Number.isInteger(pageSize) || pageSize < 1 || pageSize > 1000)
    throw invalidParameter(
      'pageSize',
      `Invalid value '${pageSize}'. Values must be within the range: [1, 1000]`,
    );
  const q = query.get('q') ?? '';
  const test = q.trim() === '' ? () => true : parseQuery(q);
  const found = files.filter(test).sort(orderOf(query.get('orderBy') ?? 'modifiedTime desc'));
  const token = query.get('pageToken');
  const after = token === null ? -1 : found.findIndex(({ id }) => tokenOf(id) === token);
  if (token !== null && after === -1) throw invalidParameter('pageToken', 'Invalid Value');
  const page = found.slice(after + 1, after + 1 + pageSize);
  const last = page.at(-1);
  const hasMore = last !== undefined && found.at(-1) !== last;
  return { files: page, nextPageToken: hasMore ? tokenOf(last.id) : undefined };
}

function tokenOf(id: string): string {
  return `~!!~${Buffer.from(id).toString('base64url')}`;
}

type Order = (a: DriveFile, b: DriveFile) => number;

const orders: Readonly<Record<string, Order>> = {
  name: (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0),
  createdTime: (a, b) => a.createdAt - b.createdAt,
  modifiedTime: (a, b) => a.modifiedAt - b.modifiedAt,
  folder: (a, b) => Number(isFolder(b)) - Number(isFolder(a)),
};

function isFolder({ mimeType }: DriveFile): boolean {
  return mimeType === 'application/vnd.google-apps.folder';
}

function orderOf(text: string): Order {
  const keys = text.split(',').map((key) => {
    const [, name = '', descending] = /^ *([A-Za-z_]+)( desc)? *$/.exec(key) ?? [];
    const order = orders[name];
    if (order === undefined) throw invalidParameter('orderBy', `Invalid field name: ${key.trim()}`);
    return descending === undefined ? order : (a: DriveFile, b: DriveFile) => order(b, a);
  });
  // Files with equal keys are ordered by ID, so that pages never overlap.
  return (a, b) => {
    for (const order of keys) {
      const difference = order(a, b);
      if (difference !== 0) return difference;
    }
    return a.id < b.id ? -1 : 1;
  };
}

/**
 * The `q` of files.list: `name = 'x' and not trashed = true`, as far as clients use it.
 *
 * Operators by field as Google documents them (developers.google.com/workspace/drive/api/guides/ref-search-terms).
 */

type Test = (file: DriveFile) => boolean;

const tokenPattern =
  /\s*(?:([()])|(!=|<=|>=|=|<|>)|'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([A-Za-z][A-Za-z.]*))/y;

type Token = { kind: 'sign' | 'text' | 'word'; text: string };

/** The filter `q`. Throws 400 for an invalid query, 501 for a field that the sandbox does not implement. */
function parseQuery(q: string): Test {
  const tokens = tokenize(q);
  let at = 0;
  const invalid = () => invalidParameter('q', 'Invalid Value');
  const isWord = (text: string) => tokens[at]?.kind === 'word' && tokens[at]?.text === text;

  function either(): Test {
    const tests = [both()];
    while (isWord('or')) {
      at += 1;
      tests.push(both());
    }
    return (file) => tests.some((test) => test(file));
  }

  function both(): Test {
    const tests = [one()];
    while (isWord('and')) {
      at += 1;
      tests.push(one());
    }
    return (file) => tests.every((test) => test(file));
  }

  function one(): Test {
    const token = tokens[at];
    at += 1;
    if (token === undefined) throw invalid();
    if (token.kind === 'word' && token.text === 'not') {
      const test = one();
      return (file) => !test(file);
    }
    if (token.kind === 'sign' && token.text === '(') {
      const test = either();
      if (tokens[at]?.text !== ')') throw invalid();
      at += 1;
      return test;
    }
    const operator = tokens[at]?.text ?? '';
    const value = tokens[at + 1];
    at += 2;
    if (value === undefined) throw invalid();
    if (token.kind === 'text') return memberOf(token.text, { operator, field: value.text });
    if (token.kind !== 'word') throw invalid();
    return termOf(token.text, { operator, value: value.text });
  }

  const test = either();
  if (at < tokens.length) throw invalid();
  return test;
}

function tokenize(q: string): Token[] {
  const tokens: Token[] = [];
  tokenPattern.lastIndex = 0;
  const end = q.trimEnd().length;
  while (tokenPattern.lastIndex < end) {
    const found = tokenPattern.exec(q);
    if (found === null) throw invalidParameter('q', 'Invalid Value');
    const [, bracket, operator, single, double, word] = found;
    const quoted = single ?? double;
    if (quoted !== undefined) tokens.push({ kind: 'text', text: quoted.replace(/\\(.)/g, '$1') });
    else if (word !== undefined) tokens.push({ kind: 'word', text: word });
    else tokens.push({ kind: 'sign', text: bracket ?? operator ?? '' });
  }
  return tokens;
}

function memberOf(text: string, { operator, field }: { operator: string; field: string }): Test {
  if (operator !== 'in') throw invalidParameter('q', 'Invalid Value');
  if (field === 'parents')
    return (file) => file.parents.includes(text === 'root' ? rootOf(file.owner.sub) : text);
  if (field === 'owners') return (file) => text === 'me' || file.owner.email === text;
  throw notImplemented(`'...' in ${field} in q`);
}

function termOf(field: string, { operator, value }: { operator: string; value: string }): Test {
  const refuse = () => invalidParameter('q', 'Invalid Value');
  switch (field) {
    case 'name': {
      // `contains` matches the beginnings of words, case-insensitively.
      const words = new RegExp(`(^|[^\\p{L}\\p{N}])${RegExp.escape(value)}`, 'iu');
      if (operator === 'contains') return (file) => words.test(file.name);
      if (operator === '=') return (file) => file.name === value;
      if (operator === '!=') return (file) => file.name !== value;
      throw refuse();
    }
    case 'mimeType':
      if (operator === 'contains') return (file) => file.mimeType.startsWith(value);
      if (operator === '=') return (file) => file.mimeType === value;
      if (operator === '!=') return (file) => file.mimeType !== value;
      throw refuse();
    case 'trashed':
    case 'starred': {
      if (!/^(true|false)$/.test(value) || !/^!?=$/.test(operator)) throw refuse();
      const wanted = (value === 'true') === (operator === '=');
      return (file) => file[field] === wanted;
    }
    case 'modifiedTime':
    case 'createdTime': {
      const time = Date.parse(value);
      const compare = comparisons[operator];
      if (Number.isNaN(time) || compare === undefined) throw refuse();
      const key = field === 'createdTime' ? 'createdAt' : 'modifiedAt';
      return (file) => compare(file[key], time);
    }
    case 'fullText':
    case 'sharedWithMe':
    case 'properties':
    case 'appProperties':
    case 'visibility':
    case 'viewedByMeTime':
      throw notImplemented(`${field} in q`);
    default:
      throw refuse();
  }
}

const comparisons: Readonly<Record<string, (a: number, b: number) => boolean>> = {
  '=': (a, b) => a === b,
  '!=': (a, b) => a !== b,
  '<': (a, b) => a < b,
  '<=': (a, b) => a <= b,
  '>': (a, b) => a > b,
  '>=': (a, b) => a >= b,
};
