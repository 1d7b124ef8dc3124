/** The JSON objects and lists in a text. */
function valuesIn(text: string): unknown[] {
  const found: unknown[] = [];
  for (let from = text.search(/[[{]/); from >= 0; ) {
    const end = endOf(text, from);
    const value = parsed(text.slice(from, end));
    if (value !== undefined) found.push(value);
    const next = text.slice(value === undefined ? from + 1 : end).search(/[[{]/);
    from = next < 0 ? -1 : (value === undefined ? from + 1 : end) + next;
  }
  return found;
}

/** The rest of a text of JSON values that is not JSON. */
export function withoutValues(text: string): string {
  const from = text.search(/\S/);
  if (from < 0) return '';
  const end = endOf(text, from);
  return parsed(text.slice(from, end)) === undefined ? text : withoutValues(text.slice(end));
}

/** The position after the bracket that closes the one at `from`. */
function endOf(text: string, from: number): number {
  let depth = 0;
  let isText = false;
  for (let at = from; at < text.length; at += 1) {
    const letter = text[at];
    if (isText && letter === '\\') at += 1;
    else if (letter === '"') isText = !isText;
    else if (!isText && (letter === '{' || letter === '[')) depth += 1;
    else if (!isText && (letter === '}' || letter === ']')) {
      depth -= 1;
      if (depth === 0) return at + 1;
    }
  }
  return text.length;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/**
 * Fields of a page's JSON that no answer has, by their path, and values of another type. Values, the length of lists and
 * omitted fields are not compared. If there are several answers, the most similar one counts.
 */
export function missingIn(output: string, shown: string): string[] {
  const answers = valuesIn(output);
  return valuesIn(shown).flatMap((value) => {
    const each = answers.map((answer) => differences(value, answer, ''));
    return each.toSorted((a, b) => a.length - b.length)[0] ?? ['there is no JSON'];
  });
}

/** Objects whose fields callers name. */
const isOpen = (path: string) => /\.(tags|metadata|details|payload|evidence)$/.test(path);

function differences(shown: unknown, came: unknown, path: string): string[] {
  if (shown === null || came === null) return [];
  if (Array.isArray(shown)) {
    if (!Array.isArray(came)) return [`${path} is not a list`];
    return shown.length === 0 || came.length === 0 ? [] : differences(shown[0], came[0], `${path}[]`);
  }
  if (typeof shown !== typeof came) return [`${path} is not a ${typeof shown}`];
  if (typeof shown !== 'object') return [];
  return (
    Object.entries(shown)
      // Fields that the page omits.
      .filter(([name]) => name !== '...')
      .flatMap(([name, part]) =>
        isOpen(path) || Object.hasOwn(came as object, name)
          ? isOpen(path)
            ? []
            : differences(part, (came as Record<string, unknown>)[name], `${path}.${name}`)
          : [`${path}.${name} is missing`],
      )
  );
}
