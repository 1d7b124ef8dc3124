import { useParams } from '@tanstack/react-router';

const key = 'trellis-environment';

/** The environment in the address. */
export function useEnvironment(): string {
  const { environment } = useParams({ from: '/$environment' });
  return environment;
}

/** The last opened environment in this browser. */
export function lastEnvironment(): string | undefined {
  try {
    return localStorage.getItem(key) ?? undefined;
  } catch {
    return undefined;
  }
}

export function rememberEnvironment(name: string): void {
  try {
    localStorage.setItem(key, name);
  } catch {
    // Without storage, the first environment is opened.
  }
}
