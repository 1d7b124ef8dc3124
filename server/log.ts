import { type Logger, pino } from 'pino';
import pretty from 'pino-pretty';
import type { LogLevel } from './config.ts';

export type { Logger };

/**
 * The service's log on standard output.
 *
 * Whatever could carry a secret is not given to it in the first place: requests are logged by route, never by
 * query, header or body. The redaction here is the second line of defence.
 */
export function createLog(settings: { level: LogLevel; format: 'pretty' | 'json' }): Logger {
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
    formatters: { level: (label: string) => ({ level: label }) },
    timestamp: pino.stdTimeFunctions.isoTime,
  };
  if (settings.format === 'json') return pino(options, pino.destination({ dest: 1, sync: true }));
  return pino(
    options,
    pretty({ colorize: true, translateTime: 'HH:MM:ss.l', ignore: 'pid,hostname', sync: true }),
  );
}
