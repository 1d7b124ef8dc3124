import { useCallback, useEffect, useRef, useState } from 'react';
import { onSessionToken } from './host.ts';
import { keepToken, type Launch } from './launch.ts';
import { type Choices, fetchChoices, fetchProgress, type Progress, type Session } from './queries.ts';

/** The session as the service knows it, and what is known while it does not answer. */
export type SessionView = {
  session: Session | undefined;
  progress: Progress | undefined;
  choices: Choices | undefined;
  fault: unknown;
  load: () => Promise<void>;
  /** Asks how far it is; true where it has ended, or a trip failed since it was asked before. */
  ask: () => Promise<boolean>;
};

export function useSession(launch: Launch): SessionView {
  const [token, setToken] = useState(launch.token);
  const [progress, setProgress] = useState<Progress>();
  const [choices, setChoices] = useState<Choices>();
  const [fault, setFault] = useState<unknown>();
  const failedAt = useRef<string>(undefined);

  useEffect(() => {
    if (!launch.isFramed) return;
    return onSessionToken((given) => {
      keepToken(launch.brand, given);
      setToken(given);
    });
  }, [launch]);

  const read = useCallback(async (session: Session): Promise<Progress> => {
    const now = await fetchProgress(session);
    setProgress(now);
    return now;
  }, []);
  const load = useCallback(async () => {
    if (token === undefined) return;
    const session = { token, baseUrl: launch.baseUrl };
    setFault(undefined);
    try {
      const now = await read(session);
      failedAt.current = now.failure?.at;
      if (now.state === 'open' && now.connection === null) setChoices(await fetchChoices(session));
    } catch (error) {
      setFault(error);
    }
  }, [token, launch, read]);
  useEffect(() => void load(), [load]);

  const ask = useCallback(async () => {
    if (token === undefined) return false;
    const now = await read({ token, baseUrl: launch.baseUrl });
    const hasFailed = now.failure !== null && now.failure.at !== failedAt.current;
    failedAt.current = now.failure?.at ?? failedAt.current;
    return now.state !== 'open' || hasFailed;
  }, [token, launch, read]);

  const session = token === undefined ? undefined : { token, baseUrl: launch.baseUrl };
  return { session, progress, choices, fault, load, ask };
}
