/**
 * What stands at a path such as `data.items[0].id`; undefined where nothing does. A key that holds the dots itself goes
 * first, at each step: `@odata.nextLink` is one name. An empty path is the value itself.
 */
export function at(value: unknown, path: string): unknown {
  if (isObject(value) && Object.hasOwn(value, path)) return value[path];
  const names = stepsOf(path);
  let found = value;
  for (const [index, name] of names.entries()) {
    if (!isObject(found)) return undefined;
    const rest = names.slice(index).join('.');
    if (Object.hasOwn(found, rest)) return found[rest];
    if (!Object.hasOwn(found, name)) return undefined;
    found = found[name];
  }
  return found;
}

/**
 * A copy of an object with a value set at a path, steps that are missing made on the way. A key that holds the dots itself goes
 * first. Throws a TypeError where the path leads through something that has no fields.
 */
export function withAt(
  target: Record<string, unknown>,
  path: string,
  value: unknown,
): Record<string, unknown> {
  if (Object.hasOwn(target, path)) return { ...target, [path]: value };
  const [name = path, ...more] = stepsOf(path);
  if (more.length === 0) return { ...target, [name]: value };
  const inner = (Object.hasOwn(target, name) ? target[name] : undefined) ?? {};
  if (!isObject(inner) || Array.isArray(inner)) {
    throw new TypeError(`Nothing can be set at ${path}: ${name} is no object.`);
  }
  return { ...target, [name]: withAt(inner, more.join('.'), value) };
}

function stepsOf(path: string): string[] {
  return path
    .replace(/\[(\w+)\]/g, '.$1')
    .split('.')
    .filter((name) => name !== '');
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
