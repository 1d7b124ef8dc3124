/**
 * Finds the modules that a bundle requires, by parsing it. `check-requires.ts` runs this module as a function, in a process for
 * functions: the service itself does not parse text of a customer.
 */
import { type Node, type Options, Parser } from 'acorn';

/** The modules that a bundle may require. Node's modules may have the prefix `node:`. */
const allowedModules: readonly string[] = ['buffer', 'crypto', 'events', 'stream', 'url', 'util', 'zod'];

/** A place in the bundle that requires or imports a module that is not allowed; line and column count from 1. */
type RefusedRequire = { module: string; line: number; column: number; message: string };

export type CheckInput = { code: string; also: readonly string[] };

/** The function. Returns why the bundle is refused, one sentence for each place. */
export default {
  type: 'action',
  exec(_context: unknown, { code, also }: CheckInput): string[] {
    try {
      return refusedRequires(code, also).map(
        ({ message, line, column }) => `${message} (line ${line}, column ${column})`,
      );
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      return [`is not JavaScript: ${error.message}`];
    }
  },
};

const maxRefused = 100;
const maxNameLength = 200;

/**
 * The first 100 places where a bundle requires or imports a module that is neither in the allow-list nor in `also`, the names of
 * the authoring SDK. Computed names, and texts that are nested too deeply for the parser, are left to the loader, which
 * refuses them.
 *
 * Throws SyntaxError when the text is not JavaScript.
 */
export function refusedRequires(code: string, also: readonly string[] = []): RefusedRequire[] {
  const allowed = new Set([...allowedModules, ...allowedModules.map((name) => `node:${name}`), ...also]);
  allowed.delete('node:zod');
  const { requires, imports } = find(code);
  const refused = [...requires.filter(({ module }) => !allowed.has(module)), ...imports]
    .sort((one, other) => one.start - other.start)
    .slice(0, maxRefused);
  let line = 1;
  let lineStart = 0;
  return refused.map(({ module, start }) => {
    for (let end = code.indexOf('\n', lineStart); end >= 0 && end < start; ) {
      line += 1;
      lineStart = end + 1;
      end = code.indexOf('\n', lineStart);
    }
    const name = module.slice(0, maxNameLength);
    const message = `A function cannot use "${name}": only ${[...allowedModules, ...also].join(', ')}.`;
    return { module: name, line, column: start - lineStart + 1, message };
  });
}

type Found = { module: string; start: number };

function find(code: string): { requires: Found[]; imports: Found[] } {
  try {
    return new RequireFinder({ ecmaVersion: 'latest', sourceType: 'commonjs' }, code).find();
  } catch (error) {
    if (error instanceof RangeError) return { requires: [], imports: [] };
    if (!(error instanceof SyntaxError)) throw error;
    const { line } = (error as SyntaxError & { loc: { line: number } }).loc;
    throw new SyntaxError(`${error.message.replace(/ \(\d+:\d+\)$/, '')} (line ${line})`, { cause: error });
  }
}

/** The internals of acorn that this module uses. Acorn documents them for plugins only. */
type AcornInternals = {
  parse(): unknown;
  scopeStack: Scope[];
  enterScope(flags: number): void;
  exitScope(): void;
  finishNode(node: Node, type: string): Node;
  parseStatement(...args: unknown[]): Node;
};
type Scope = {
  var: string[];
  lexical: string[];
  functions: string[];
  /** The number of requires that were found before it. */
  requiresBefore?: number;
};
type Call = Node & { callee: Expression; arguments: Expression[] };
type Expression = Node & {
  name?: string;
  value?: unknown;
  computed?: boolean;
  object?: Expression;
  property?: Expression;
  expressions?: Expression[];
  quasis?: { value: { cooked: string | null } }[];
  consequent?: Expression;
  alternate?: Expression;
};

const AcornParser = Parser as unknown as new (options: Options, input: string) => AcornInternals;

/** Keeps no tree: the tree of a bundle of 10 MB does not fit in the memory of the process. */
class RequireFinder extends AcornParser {
  #requires: Found[] = [];
  readonly #imports: Found[] = [];

  find(): { requires: Found[]; imports: Found[] } {
    this.parse();
    this.#dropOwn(this.scopeStack[0]!);
    return { requires: this.#requires, imports: this.#imports };
  }

  override enterScope(flags: number): void {
    super.enterScope(flags);
    // Acorn enters the outermost scope before this class has its fields.
    this.scopeStack.at(-1)!.requiresBefore = #requires in this ? this.#requires.length : 0;
  }

  override exitScope(): void {
    const scope = this.scopeStack.at(-1)!;
    super.exitScope();
    this.#dropOwn(scope);
  }

  override parseStatement(...args: unknown[]): Node {
    const { start, end } = super.parseStatement(...args);
    return { type: 'EmptyStatement', start, end };
  }

  override finishNode(node: Node, type: string): Node {
    const finished = super.finishNode(node, type);
    if (type === 'ImportExpression')
      this.#imports.push(...namesIn((finished as Node & { source: Expression }).source));
    else if (type === 'CallExpression' && isRequire((finished as Call).callee)) {
      const [name] = (finished as Call).arguments;
      if (name !== undefined) this.#requires.push(...namesIn(name));
    } else if (type === 'FunctionExpression' && (finished as { id?: Expression }).id?.name === 'require')
      this.#requires = this.#requires.filter(({ start }) => start < finished.start);
    return finished;
  }

  /** A scope that declares its own `require` does not use that of the bundle. */
  #dropOwn(scope: Scope): void {
    if ([scope.var, scope.lexical, scope.functions].some((names) => names.includes('require')))
      this.#requires.length = Math.min(this.#requires.length, scope.requiresBefore!);
  }

  // V8 checks regular expressions when it loads the bundle.
  validateRegExpFlags(): void {}
  validateRegExpPattern(): void {}

  /** Acorn would report a syntax error. */
  catchStackOverflow<T>(parse: () => T): T {
    return parse();
  }
}

function isRequire({ type, name, object, property, computed }: Expression): boolean {
  if (type === 'Identifier') return name === 'require';
  return (
    type === 'MemberExpression' && !computed && property?.name === 'resolve' && object?.name === 'require'
  );
}

function namesIn({ type, start, value, quasis, expressions, consequent, alternate }: Expression): Found[] {
  if (type === 'Literal' && typeof value === 'string') return [{ module: value, start }];
  if (type === 'TemplateLiteral' && expressions!.length === 0)
    return [{ module: quasis![0]!.value.cooked ?? '', start }];
  if (type === 'ConditionalExpression') return [...namesIn(consequent!), ...namesIn(alternate!)];
  return [];
}
