import type { TemplateValues } from '../providers/template-grammar.ts';
import type { LiveConnection } from './reader.ts';

/** What a connection puts into the placeholders of its provider's addresses. */
export function templateValues(
  connection: Pick<LiveConnection, 'connectionConfig' | 'integration'>,
): Omit<TemplateValues, 'credentials'> {
  return {
    connectionConfig: textsOf(connection.connectionConfig),
    integrationConfig: connection.integration.integrationConfig,
  };
}

/** Only text fills a placeholder; other values are kept for the application alone. */
function textsOf(config: Record<string, unknown>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(config).filter((entry): entry is [string, string] => typeof entry[1] === 'string'),
  );
}
