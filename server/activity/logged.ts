import { AppError } from '../errors.ts';
import type { Operation, OperationDetails, OperationMessage } from './operations.ts';
import type { Activity } from './writer.ts';

/** Takes down what is worth telling of an operation on its way. Never a secret. */
export type Tell = (level: OperationMessage['level'], message: string, details?: OperationDetails) => void;

/** The maximum of messages of one operation, so that an operation in a loop does not fill the log. */
const maxMessages = 50;

/**
 * Logs what `work` comes to, how long it took and what it told; answers and throws as it does. `of` adds what the result
 * says. Logging delays nothing and fails nothing.
 */
export async function logged<T>(
  activity: Activity,
  about: Omit<Operation, 'status' | 'durationMs' | 'messages'> & { of?: (result: T) => Partial<Operation> },
  work: (tell: Tell) => Promise<T>,
): Promise<T> {
  const { of, ...operation } = about;
  const startedAt = performance.now();
  const messages: OperationMessage[] = [];
  const log = (status: Operation['status'], more: Partial<Operation>) =>
    activity.log({ ...operation, status, durationMs: elapsedMs(startedAt), messages, ...more });
  const tell: Tell = (level, message, details) => {
    if (messages.length < maxMessages) messages.push({ level, message, ...(details && { details }) });
  };
  let result: T;
  try {
    result = await work(tell);
  } catch (error) {
    const { message, ...fault } = faultOf(error);
    tell('error', message);
    log('failed', fault);
    throw error;
  }
  log('success', of?.(result) ?? {});
  return result;
}

/** How the log names an error: what is none of ours says nothing there. */
export function faultOf(error: unknown): { errorCode: string; httpStatus: number; message: string } {
  if (!(error instanceof AppError)) {
    return { errorCode: 'internal', httpStatus: 500, message: 'unexpected error' };
  }
  return { errorCode: error.code, httpStatus: error.status, message: error.message };
}

/** To a hundredth. */
function elapsedMs(startedAt: number): number {
  return Math.round((performance.now() - startedAt) * 100) / 100;
}
