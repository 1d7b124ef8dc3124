import { createRequire } from 'node:module';
import { type DestinationStream, type Logger, pino } from 'pino';
import type { LogLevel } from './config/config.ts';
import { causeFields } from './tracing/tracing.ts';

export type { Logger };

/** Type, message, stack and causes of an error. Not its other fields: those of a database error hold values. */
function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return String(error);
  const { name, message, stack, cause } = error;
  const { code } = error as { code?: unknown };
  return {
    type: name,
    message,
    ...(typeof code === 'string' && { code }),
    stack,
    ...(cause !== undefined && { cause: describeError(cause) }),
  };
}

/** The request, run or job of each line, unless the logger adds it already. */
function causeOfLine(_line: object, _level: number, logger: Logger): object {
  const fields = causeFields();
  if ('reqId' in fields && 'reqId' in logger.bindings()) delete fields.reqId;
  return fields;
}

/**
 * The service's log, on standard output unless JSON lines have another destination.
 *
 * Callers log nothing that may hold a secret: requests are logged by route, never by query, header or body. The redaction here
 * is the second line of defence.
 */
export function createLog(
  settings: { level: LogLevel; format: 'pretty' | 'json' },
  destination: DestinationStream = pino.destination({ dest: 1, sync: true }),
): Logger {
  const options = {
    level: settings.level,
    base: null,
    redact: {
      paths: [
        'authorization',
        'cookie',
        'headers',
        '*.authorization',
        '*.cookie',
        '*.headers',
        'err.config',
        '*.token',
      ],
      remove: true,
    },
    mixin: causeOfLine,
    serializers: { err: describeError },
    formatters: { level: (label: string) => ({ level: label }) },
    timestamp: pino.stdTimeFunctions.isoTime,
  };
  if (settings.format === 'json') return pino(options, destination);
  // Only this format needs the library, which has thirty files.
  const pretty = createRequire(import.meta.url)('pino-pretty') as typeof import('pino-pretty');
  return pino(
    options,
    pretty({ colorize: true, translateTime: 'HH:MM:ss.l', ignore: 'pid,hostname', sync: true }),
  );
}
