/** Writes the commands into docs/reference/cli.md: `node scripts/cli-reference.ts`. A test compares it with the table. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { processContext } from '../sdk/cli/arguments.ts';
import {
  type AnyCommand,
  argumentsOf,
  commandsOf,
  createProgram,
  isGroup,
  pathOf,
} from '../server/cli/commands.ts';

const page = join(import.meta.dirname, '../docs/reference/cli.md');
const mark =
  '<!-- The rest of this page is written by scripts/cli-reference.ts from server/cli/commands.ts. -->\n';

/** Returns the page with its commands brought up to date. Throws if the page has no mark. */
export function cliReference(text: string): string {
  const end = text.indexOf(mark);
  if (end < 0) throw new Error('docs/reference/cli.md has no mark after which the commands are written');
  const program = createProgram({ context: processContext, end: () => {} });
  const parts = commandsOf(program)
    .filter((command) => !isGroup(command))
    .map(describe);
  return `${text.slice(0, end)}${mark}\n${parts.join('\n\n')}\n`;
}

function describe(command: AnyCommand): string {
  const help = command.createHelp();
  const rows = [
    ...command.registeredArguments.map((one) => row(help.argumentTerm(one), help.argumentDescription(one))),
    ...help
      .visibleOptions(command)
      .filter(({ long }) => long !== '--help' && long !== '--version')
      .map((one) => {
        const description = `${help.optionDescription(one)}${one.mandatory ? '; required' : ''}`;
        return row(one.flags, description);
      }),
  ];
  const description = command.description().replaceAll(/<[^ ]+>(?:[\w.]*\w)?/g, '`$&`');
  const sentence = `${description[0]!.toUpperCase()}${description.slice(1)}${description.endsWith('.') ? '' : '.'}`;
  const table = rows.length > 0 ? `\n\n| argument or option | |\n|---|---|\n${rows.join('\n')}` : '';
  const name = `${pathOf(command)} ${argumentsOf(command)}`.trimEnd();
  return `### \`${name}\`\n\n${sentence}${table}`;
}

function row(term: string, description: string): string {
  return `| \`${term}\` | ${description.replaceAll(/<[^ ]+>/g, '`$&`').replaceAll('|', '\\|')} |`;
}

if (import.meta.main) writeFileSync(page, cliReference(readFileSync(page, 'utf8')));
