import type { SettingsTab } from '../search.ts';
import { useIsOwner, useMay } from '../sign-in/queries.ts';

type ListedTab = {
  tab: SettingsTab;
  label: string;
  /** Further words by which the search finds the tab. */
  keywords?: string;
};

/** The tabs of the settings that the user's role may see. */
export function useSettingsTabs(): ListedTab[] {
  const may = useMay();
  const isOwner = useIsOwner();
  const tabs: [ListedTab, boolean][] = [
    [
      { tab: 'account', label: 'Your account', keywords: 'password two-factor authentication sessions' },
      true,
    ],
    [{ tab: 'keys', label: 'Keys', keywords: 'secret API key scopes' }, may('keys')],
    [{ tab: 'variables', label: 'Variables' }, may('environment:read')],
    [
      { tab: 'connect-page', label: 'Connect page', keywords: 'colors logo texts language' },
      may('environment:read'),
    ],
    [{ tab: 'audit', label: 'Audit log' }, may('activity:read')],
    [{ tab: 'environments', label: 'Environments' }, isOwner],
    [{ tab: 'people', label: 'People', keywords: 'users invitations roles' }, isOwner],
  ];
  return tabs.filter(([, isFor]) => isFor).map(([tab]) => tab);
}
