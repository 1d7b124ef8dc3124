/**
 * What is wrong with a template of a definition, told at start. These rules make the fills of `template.ts` safe: a
 * value may choose a label inside a host, never where the host ends.
 */
import {
  type Address,
  fieldOf,
  isLoopbackHost,
  nameOf,
  parseAddress,
  patternExpression,
  placeholdersOf,
  TemplateError,
  type TemplateFields,
} from './template-grammar.ts';

const FIXED_SUFFIX = /^[A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+){2,}$/;

/**
 * What is wrong with an address template of a definition; an empty list means that no value can move it elsewhere.
 *
 * `ownCredentialsOnly` says that everything secret sent there belongs to the connection itself (API key, basic):
 * only then may a connection choose a whole host. Otherwise the integration's client secret goes along, and a whole
 * host may come from `integrationConfig` alone.
 */
export function addressFaults(
  template: string,
  context: { fields: TemplateFields; ownCredentialsOnly: boolean },
): string[] {
  let address: Address;
  try {
    address = parseAddress(template);
  } catch (error) {
    if (error instanceof TemplateError) return [error.message];
    throw error;
  }
  const faults = undeclaredFaults(template, context.fields);
  if (address.start === 'http://' && !isLoopbackHost(address.host.join('')))
    faults.push('the address must be https');
  const fromHost = [address.start, ...address.host].filter((part) => typeof part !== 'string');
  for (const placeholder of fromHost) {
    const name = nameOf(placeholder);
    const field = fieldOf(context.fields, placeholder);
    if (placeholder.source === 'credentials')
      faults.push(`${name} is a credential and must not choose a host`);
    if (placeholder === address.start) {
      if (field && field.format !== 'uri')
        faults.push(`${name} brings a whole address and needs "format: uri"`);
    } else if (field && field.pattern === undefined) {
      faults.push(`${name} is part of a host and needs a pattern`);
    } else if (field?.pattern !== undefined && allowsForeignText(field.pattern)) {
      faults.push(`${name} is part of a host, but its pattern lets through more than labels`);
    }
    if (
      placeholder.source === 'connectionConfig' &&
      !context.ownCredentialsOnly &&
      !hasFixedSuffix(address)
    ) {
      faults.push(
        `${name} would choose the whole host: the template needs a fixed end such as ".example.com", ` +
          'or the value must come from integrationConfig, since the client secret is sent there',
      );
    }
  }
  return faults;
}

/** As `addressFaults`, for a header, a query value or a path: the placeholders are well formed and declared. */
export function textFaults(template: string, context: { fields: TemplateFields }): string[] {
  try {
    return undeclaredFaults(template, context.fields);
  } catch (error) {
    if (error instanceof TemplateError) return [error.message];
    throw error;
  }
}

/**
 * What is wrong with the name under which credentials are placed. Only a header's may come from a setting, which is
 * judged by its format: a query is repeated in links and redirects, and a body by the messages of its parser.
 */
export function placementFaults(
  { in: place, name }: { in: 'header' | 'query' | 'body'; name: string },
  fields: TemplateFields,
): string[] {
  if (textFaults(name, { fields }).length > 0) return [];
  const placeholders = placeholdersOf(name);
  if (placeholders.length === 0) return [];
  if (place !== 'header') return [`the name in the ${place} that carries credentials must be fixed`];
  const isWhole = placeholders.length === 1 && name === `\${${nameOf(placeholders[0]!)}}`;
  if (isWhole && fieldOf(fields, placeholders[0]!)?.format === 'header_name') return [];
  return ['a header name must be fixed, or one placeholder of a field with "format: header_name"'];
}

function hasFixedSuffix(address: Address): boolean {
  const last = address.host.at(-1);
  return typeof last === 'string' && FIXED_SUFFIX.test(last);
}

function undeclaredFaults(template: string, fields: TemplateFields): string[] {
  return placeholdersOf(template)
    .filter((placeholder) => fieldOf(fields, placeholder) === undefined)
    .map((placeholder) => `${nameOf(placeholder)} is not a declared field`);
}

// A pattern is probed with what an attacker would type; the label check at fill time stands behind it.
function allowsForeignText(pattern: string): boolean {
  const expression = patternExpression(pattern);
  return ['', 'a/b', 'a\\b', 'a@b', 'a#b', 'a?b', 'a:1', 'a b', 'a%2eb', 'ａ'].some((probe) =>
    expression.test(probe),
  );
}
