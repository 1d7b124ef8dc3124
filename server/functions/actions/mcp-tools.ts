/** Actions as MCP tools: how each is shown, and what it is given. Pure. */
import type { Definition, JsonSchema } from '../deploys/definition.ts';
import type { DeployedFunction } from '../deploys/store.ts';

/** A tool as https://modelcontextprotocol.io/specification/2025-06-18/server/tools has it. */
type ActionTool = {
  name: string;
  description: string;
  inputSchema: JsonSchema & { type: 'object' };
  annotations: { readOnlyHint: boolean };
};

/** The arguments of a tool are an object; an input that is none stands in it under this name. */
const wrapped = 'input';

export function toTool({ name, definition }: Pick<DeployedFunction, 'name' | 'definition'>): ActionTool {
  return {
    name,
    description: definition.description,
    inputSchema: schemaOf(definition.input),
    annotations: { readOnlyHint: definition.read_only },
  };
}

/** What the action gets of the arguments. An action that takes anything gets nothing where there are none. */
export function inputOf(
  { input }: Pick<Definition, 'input'>,
  given: Record<string, unknown> | undefined,
): unknown {
  if (isObject(input)) return given ?? {};
  if (takesAnything(input)) return given === undefined || Object.keys(given).length === 0 ? undefined : given;
  return given?.[wrapped];
}

function schemaOf(input: JsonSchema | null): ActionTool['inputSchema'] {
  if (isObject(input)) return input;
  if (takesAnything(input)) return { type: 'object', properties: {} };
  const { definitions, ...rest } = input;
  return {
    type: 'object',
    // What points at its own top would point at another one here.
    properties: { [wrapped]: JSON.stringify(rest).includes('"$ref":"#"') ? {} : rest },
    required: [wrapped],
    ...(definitions !== undefined && { definitions }),
  };
}

function isObject(input: JsonSchema | null): input is ActionTool['inputSchema'] {
  return input?.type === 'object';
}

/** Also of an input that JSON Schema has no word for, such as `z.void()`. */
function takesAnything(input: JsonSchema | null): input is null {
  return input === null || Object.keys(input).length === 0;
}
