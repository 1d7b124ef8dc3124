import { type FSWatcher, readdirSync, watch } from 'node:fs';
import { join } from 'node:path';

export type FolderWatch = {
  /**
   * To be called each time before the folder is read: whatever changes from then on is told. Throws ENOENT where there is no
   * such folder.
   */
  renew(): void;
  close(): void;
};

/**
 * Tells of changes in a folder of functions and those below it, with the name of the file where the system gives it. Each is
 * watched by itself, and anew before each look: Node's watcher of a whole tree hears nothing of folders that have taken
 * the place of others of the same name, as they do when branches are changed.
 */
export function watchFolder(
  folder: string,
  { onChange, onError }: { onChange: (file: string | null) => void; onError: (error: Error) => void },
): FolderWatch {
  const watchers: FSWatcher[] = [];

  function open(path: string): void {
    watchers.push(watch(path, (_, file) => onChange(file)).on('error', onError));
  }

  function openBelow(path: string): void {
    // Before it is read: what comes into it later is told.
    open(path);
    for (const entry of readdirSync(path, { withFileTypes: true })) {
      const isRead = entry.isDirectory() && entry.name !== 'node_modules' && !entry.name.startsWith('.');
      try {
        if (isRead) openBelow(join(path, entry.name));
        else if (entry.isSymbolicLink()) open(join(path, entry.name));
      } catch (error) {
        // It went since, or leads nowhere.
        if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      }
    }
  }

  function close(): void {
    for (const watcher of watchers.splice(0)) watcher.close();
  }

  return {
    renew() {
      close();
      openBelow(folder);
    },
    close,
  };
}
