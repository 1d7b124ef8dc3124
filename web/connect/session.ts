import { useCallback, useEffect, useRef, useState } from 'react';
import { onSessionToken } from './host.ts';
import { keepToken, type Launch } from './launch.ts';
import {
  type Choices,
  fetchChoices,
  fetchOpening,
  fetchProgress,
  type Progress,
  type Session,
  type Settings,
} from './queries.ts';

/** The session as the service knows it, and what is known while it does not answer. */
export type SessionView = {
  session: Session | undefined;
  progress: Progress | undefined;
  settings: Settings | undefined;
  choices: Choices | undefined;
  fault: unknown;
  load: () => Promise<void>;
  /**
   * Asks how far it is; true where a trip failed since it was asked before, and where the session is over: not yet
   * where it has expired and somebody who is under way may still come back.
   */
  ask: () => Promise<boolean>;
};

/** The token that counts: the page around a frame may give another one at any time. */
export function useToken(launch: Launch): string | undefined {
  const [token, setToken] = useState(launch.token);
  useEffect(() => {
    if (!launch.isFramed) return;
    return onSessionToken((given) => {
      keepToken(launch.brand, given);
      setToken(given);
    });
  }, [launch]);
  return token;
}

/** The session of one token. A component that uses it has the token as its key, so that no session shows data of another. */
export function useSession(launch: Launch, token: string | undefined): SessionView {
  const [progress, setProgress] = useState<Progress>();
  const [settings, setSettings] = useState<Settings>();
  const [choices, setChoices] = useState<Choices>();
  const [fault, setFault] = useState<unknown>();
  const failedAt = useRef<string>(undefined);

  const load = useCallback(async () => {
    if (token === undefined) return;
    const session = { token, baseUrl: launch.baseUrl };
    setFault(undefined);
    try {
      const now = await fetchOpening(session);
      setProgress(now);
      setSettings(now.settings);
      failedAt.current = now.failure?.at;
      if (now.state === 'open' && now.connection === null) setChoices(await fetchChoices(session));
    } catch (error) {
      setFault(error);
    }
  }, [token, launch]);
  useEffect(() => void load(), [load]);

  const ask = useCallback(async () => {
    if (token === undefined) return false;
    const now = await fetchProgress({ token, baseUrl: launch.baseUrl });
    setProgress(now);
    const hasFailed = now.failure !== null && now.failure.at !== failedAt.current;
    failedAt.current = now.failure?.at ?? failedAt.current;
    const isOver = now.state === 'connected' || (now.state === 'expired' && !now.under_way);
    return isOver || hasFailed;
  }, [token, launch]);

  const session = token === undefined ? undefined : { token, baseUrl: launch.baseUrl };
  return { session, progress, settings, choices, fault, load, ask };
}
